// Assertions of llama.cpp as exceptions, where nothing is left half done by one.
#pragma once

namespace pronk::inline v0 {

/// While it lives, an assertion that fails on its thread throws std::runtime_error with its text,
/// where it would end the process. Only for calls that compute nothing (other threads would wait
/// for this one for ever) and that give back what they took when they are left by an exception:
/// loading a model, making a context, tokenizing. They nest.
class AssertsThrow {
 public:
  AssertsThrow() noexcept;
  ~AssertsThrow();
  AssertsThrow(const AssertsThrow&) = delete;
  AssertsThrow& operator=(const AssertsThrow&) = delete;

 private:
  const bool outer_;
};

/// Takes over what llama.cpp does when an assertion fails: without the above, a line on stderr
/// before the process ends, where ggml would start a debugger. Idempotent.
void install_abort_hook();

}  // namespace pronk::inline v0
