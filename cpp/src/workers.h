// Threads that share a loop of independent iterations.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace pronk::inline v0 {

/// Sleeps between calls. Threads are started by the first call that needs them.
class Workers {
 public:
  /// `n_threads` counts the caller of run().
  explicit Workers(std::size_t n_threads) : n_threads_(n_threads) {}
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// Calls `body` for 0 to n-1, each once, on this and the other threads; returns when all are
  /// done. `body` must not throw. One call at a time.
  void run(std::size_t n, const std::function<void(std::size_t)>& body);

 private:
  void start();
  void work();
  void take_iterations();

  const std::size_t n_threads_;
  std::vector<std::thread> threads_;
  std::atomic<std::size_t> next_{0};

  std::mutex mutex_;
  std::condition_variable called_;
  std::condition_variable finished_;
  const std::function<void(std::size_t)>* body_ = nullptr;  // guarded by mutex_ between calls
  std::size_t n_ = 0;                                       // guarded by mutex_ between calls
  std::uint64_t call_ = 0;   // guarded by mutex_; number of the current call
  std::size_t at_work_ = 0;  // guarded by mutex_; threads in the current call
  bool stop_ = false;        // guarded by mutex_
};

}  // namespace pronk::inline v0
