#include "workers.h"

#include <system_error>

#include "signals_blocked.h"

namespace pronk::inline v0 {

Workers::~Workers() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  called_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::start() {
  const SignalsBlocked blocked;
  try {
    while (threads_.size() + 1 < n_threads_) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
    // Fewer threads do the same work.
  }
}

void Workers::take_iterations() {
  for (std::size_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < n_;) (*body_)(i);
}

void Workers::work() {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    called_.wait(lock, [&] { return stop_ || call_ != seen; });
    if (stop_) return;
    seen = call_;
    if (body_ == nullptr) continue;  // woke after the call was over
    ++at_work_;
    lock.unlock();
    take_iterations();
    lock.lock();
    if (--at_work_ == 0) finished_.notify_one();
  }
}

void Workers::run(std::size_t n, const std::function<void(std::size_t)>& body) {
  if (threads_.empty() && n_threads_ > 1 && n > 1) start();
  {
    std::lock_guard lock(mutex_);
    body_ = &body;
    n_ = n;
    next_.store(0, std::memory_order_relaxed);
    ++call_;
  }
  called_.notify_all();
  take_iterations();
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return at_work_ == 0; });
  body_ = nullptr;
}

}  // namespace pronk::inline v0
