// Threads with a stack of a chosen size: llama.cpp's regular expressions and parsers recurse
// deeply, by the length of their input.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace pronk::inline v0 {

/// Runs `function`, which must not throw, on a thread with a stack of `bytes`. The stack is
/// reserved, not committed: memory is taken as deep as the recursion goes, and given back
/// afterwards.
class BigStackThread {
 public:
  /// Throws InsufficientMemoryError when the address space or the thread is not to be had.
  BigStackThread(std::size_t bytes, std::function<void()> function);
  /// Waits for its end.
  ~BigStackThread();
  BigStackThread(const BigStackThread&) = delete;
  BigStackThread& operator=(const BigStackThread&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Runs `function` on such a thread to its end, and rethrows what it throws.
void run_on_big_stack(std::size_t bytes, const std::function<void()>& function);

}  // namespace pronk::inline v0
