// Makes a pool on a thread of its own, so that whoever waits for it can turn away: a context may
// take seconds, and llama.cpp cannot be told to stop in between.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

#include "big_stack.h"
#include "clock.h"

namespace pronk::inline v0 {

class DecodeLoop;

class PoolMaker {
 public:
  using Flag = std::shared_ptr<const std::atomic<bool>>;
  /// Makes the pool, or throws. Gives up between two contexts once the flag is set.
  using Make = std::function<std::shared_ptr<DecodeLoop>(const Flag& cancelled)>;

  /// Starts at once. Throws InsufficientMemoryError without a thread to be had.
  explicit PoolMaker(Make make);
  /// Waits for the thread.
  ~PoolMaker();
  PoolMaker(const PoolMaker&) = delete;
  PoolMaker& operator=(const PoolMaker&) = delete;

  /// Nobody wants the pool any more: it is freed as soon as the context at hand is made.
  void cancel();
  bool cancelled() const noexcept { return cancelled_->load(); }
  /// Waits for the end of the thread's work. False when it goes on at `deadline`.
  bool wait_until(RealTime deadline);
  /// The pool, after the end; rethrows why there is none.
  std::shared_ptr<DecodeLoop> pool();

 private:
  void run(const Make& make);

  const std::shared_ptr<std::atomic<bool>> cancelled_ = std::make_shared<std::atomic<bool>>(false);
  std::mutex mutex_;
  std::condition_variable ended_changed_;
  bool ended_ = false;                // guarded by mutex_
  std::shared_ptr<DecodeLoop> pool_;  // guarded by mutex_
  std::exception_ptr error_;          // guarded by mutex_
  BigStackThread thread_;             // last: it uses the others
};

}  // namespace pronk::inline v0
