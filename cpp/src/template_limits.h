// How deep and how long a chat template may go: it is a program, and nothing else ends it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pronk::inline v0 {

/// While it lives, templates rendered on its thread throw std::runtime_error beyond these limits.
/// Made near the outermost frame of the thread.
class TemplateLimits {
 public:
  /// `stack` bytes for the calls of the interpreter, `steps` statements and expressions.
  TemplateLimits(std::size_t stack, std::uint64_t steps) noexcept;
  ~TemplateLimits();
  TemplateLimits(const TemplateLimits&) = delete;
  TemplateLimits& operator=(const TemplateLimits&) = delete;

  /// Throws what the template met: whoever tries a template out takes exceptions for an answer.
  void check() const;

  /// For the interpreter: another step on this thread.
  static void take_step();

 private:
  [[noreturn]] void throw_reason() const;

  enum class Beyond { kNothing, kStack, kSteps };

  const std::uintptr_t lowest_;
  const std::uint64_t most_steps_;
  std::uint64_t steps_ = 0;
  Beyond beyond_ = Beyond::kNothing;
};

}  // namespace pronk::inline v0
