// Collects what llama.cpp and ggml log, in the whole process and per call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pronk::inline v0 {

/// Takes the log over. Idempotent; before anything else of llama.cpp is called.
void install_log_hook();

/// While it lives, remembers the warnings and errors that are logged on its thread: llama.cpp tells
/// the reason of a failure nowhere else. They nest.
class LogCapture {
 public:
  LogCapture();
  ~LogCapture();
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;

  /// The errors, or where there was none the warnings, as one line of text; "no reason given"
  /// without any.
  std::string reason() const;
  bool out_of_memory() const;
  /// Bytes of the allocation that failed, where the log says.
  std::optional<std::uint64_t> failed_bytes() const;

  /// For the hook: a line was logged on this thread.
  static void record(bool error, const std::string& text);

 private:
  LogCapture* outer_;
  std::vector<std::string> errors_;
  std::vector<std::string> warnings_;
};

/// While it lives, what this thread has logged counts as debug output: a decode that is aborted or
/// finds no room is no error of the program's.
class LogAsDebug {
 public:
  LogAsDebug();
  ~LogAsDebug();
  LogAsDebug(const LogAsDebug&) = delete;
  LogAsDebug& operator=(const LogAsDebug&) = delete;

 private:
  const bool outer_;
};

void log_warning(const std::string& text);

}  // namespace pronk::inline v0
