#include "errands.h"

#include <system_error>
#include <utility>

#include "pronk/error.h"
#include "signals_blocked.h"

namespace pronk::inline v0 {

Errands::~Errands() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    waiting_.clear();
    sent_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void Errands::send(std::function<void()> errand) {
  std::lock_guard lock(mutex_);
  if (waiting_.size() >= n_idle_ && threads_.size() < most_threads_) {
    const SignalsBlocked blocked;
    try {
      threads_.emplace_back([this] { work(); });
    } catch (const std::system_error& e) {
      if (threads_.empty()) {
        throw BackendError(std::string("sampling thread: got ") + e.what() +
                           ", expected a new thread, raise the limit on threads");
      }
    }
  }
  waiting_.push_back(std::move(errand));
  sent_.notify_one();
}

void Errands::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++n_idle_;
    sent_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    --n_idle_;
    if (stop_) return;
    const std::function<void()> errand = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    errand();
    lock.lock();
  }
}

}  // namespace pronk::inline v0
