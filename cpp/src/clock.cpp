#include "clock.h"

#include <algorithm>
#include <list>
#include <string>

#include "pronk/error.h"
#include "pronk/testing.h"

namespace pronk::inline v0 {

namespace {

class SteadyClock final : public Clock {
 public:
  TimePoint now() const override {
    return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now());
  }

  void wait_until(std::condition_variable& condition, std::unique_lock<std::mutex>& lock,
                  TimePoint deadline, RealTime latest) override {
    // Some platforms turn a deadline into a wait relative to now or into another clock's time,
    // which overflows for one that means "never".
    const auto far = now() + std::chrono::hours(24);
    condition.wait_until(lock,
                         std::min({deadline, far, std::chrono::time_point_cast<Duration>(latest)}));
  }
};

}  // namespace

std::shared_ptr<Clock> Clock::steady() {
  static const auto clock = std::make_shared<SteadyClock>();
  return clock;
}

namespace testing {

/// No wake-up is lost: a waiter registers while it holds its own mutex and gives that up only
/// inside the wait, and advance() locks that mutex between the change of the time and the
/// notification. The order of locks is waiter's mutex, then mutex_; advance() therefore lets go of
/// mutex_ before it locks a waiter's mutex, and pins the waiter meanwhile so that it cannot leave
/// and destroy its mutex.
class ManualClock::Impl final : public Clock {
 public:
  TimePoint now() const override {
    const std::lock_guard lock(mutex_);
    return now_;
  }

  void wait_until(std::condition_variable& condition, std::unique_lock<std::mutex>& lock,
                  TimePoint deadline, RealTime latest) override {
    std::list<Waiter>::iterator self;
    {
      const std::lock_guard own(mutex_);
      if (now_ >= deadline) return;
      self = waiters_.insert(waiters_.end(), Waiter{&condition, lock.mutex(), 0});
    }
    changed_.notify_all();
    condition.wait_until(
        lock, std::min(latest, std::chrono::steady_clock::now() + std::chrono::hours(24)));
    lock.unlock();
    {
      std::unique_lock own(mutex_);
      changed_.wait(own, [&] { return self->pins == 0; });
      waiters_.erase(self);
    }
    lock.lock();
  }

  void advance(Duration by) {
    if (by < Duration::zero()) {
      throw InvalidArgumentError("clock step: got " + std::to_string(by.count()) +
                                 " ns, expected 0 or more, time does not go back");
    }
    std::vector<std::list<Waiter>::iterator> pinned;
    {
      const std::lock_guard own(mutex_);
      now_ = deadline_after(now_, by);
      pinned.reserve(waiters_.size());
      for (auto waiter = waiters_.begin(); waiter != waiters_.end(); ++waiter) {
        ++waiter->pins;
        pinned.push_back(waiter);
      }
    }
    for (const auto& waiter : pinned) {
      {
        const std::lock_guard until_it_sleeps(*waiter->mutex);
      }
      waiter->condition->notify_all();
      const std::lock_guard own(mutex_);
      --waiter->pins;
      changed_.notify_all();
    }
  }

  std::int32_t waiters() const {
    const std::lock_guard own(mutex_);
    return static_cast<std::int32_t>(waiters_.size());
  }

  bool wait_for_waiters(std::int32_t count, Duration timeout) const {
    const TimePoint deadline = deadline_after(Clock::steady()->now(), timeout);
    std::unique_lock own(mutex_);
    while (static_cast<std::int64_t>(waiters_.size()) < count) {
      if (Clock::steady()->now() >= deadline) return false;
      Clock::steady()->wait_until(changed_, own, deadline);
    }
    return true;
  }

 private:
  struct Waiter {
    std::condition_variable* condition;
    std::mutex* mutex;
    int pins;  // advance() calls that are about to notify it; guarded by the clock's mutex_
  };

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;  // waiters_ grew or a pin was taken off
  TimePoint now_{};                          // guarded by mutex_
  std::list<Waiter> waiters_;                // guarded by mutex_
};

ManualClock::ManualClock() : impl_(std::make_shared<Impl>()) {}

std::chrono::nanoseconds ManualClock::now() const { return impl_->now().time_since_epoch(); }

void ManualClock::advance(std::chrono::nanoseconds by) { impl_->advance(by); }

std::int32_t ManualClock::waiters() const { return impl_->waiters(); }

bool ManualClock::wait_for_waiters(std::int32_t count, std::chrono::nanoseconds timeout) const {
  return impl_->wait_for_waiters(count, timeout);
}

std::shared_ptr<Clock> ManualClock::clock() const { return impl_; }

}  // namespace testing
}  // namespace pronk::inline v0
