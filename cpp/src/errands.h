// Threads that do what may take long, one thing each, while the caller goes on.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace pronk::inline v0 {

/// Threads are started as they are needed, and sleep when there is nothing to do.
class Errands {
 public:
  explicit Errands(std::size_t most_threads) : most_threads_(most_threads) {}
  /// Waits for what is under way; what was not begun is dropped.
  ~Errands();
  Errands(const Errands&) = delete;
  Errands& operator=(const Errands&) = delete;

  /// `errand` must not throw. Throws when no thread is there to do it and none can be started.
  void send(std::function<void()> errand);

 private:
  void work();

  const std::size_t most_threads_;
  std::mutex mutex_;
  std::condition_variable sent_;
  std::deque<std::function<void()>> waiting_;  // guarded by mutex_
  std::size_t n_idle_ = 0;                     // guarded by mutex_; threads without an errand
  bool stop_ = false;                          // guarded by mutex_
  std::vector<std::thread> threads_;           // the caller's own
};

}  // namespace pronk::inline v0
