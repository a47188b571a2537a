// Tells a forked child from the process that created an object.
#pragma once

#include <cstdint>

namespace pronk::inline v0 {

/// A number that differs between a process and its forks. Costs one relaxed load.
std::uint64_t process_generation() noexcept;

/// Remembers the process in which it was constructed. In a child after fork() the owner's threads
/// do not exist and its mutexes may be locked for ever, so that nothing of it may be touched.
class ProcessBound {
 public:
  ProcessBound() noexcept : generation_(process_generation()) {}
  bool forked() const noexcept { return generation_ != process_generation(); }
  /// Throws ForkedProcessError in a child; `what` names the object.
  void check(const char* what) const;

 private:
  std::uint64_t generation_;
};

}  // namespace pronk::inline v0
