// llama.cpp's log on its way to Python's logging.
#pragma once

namespace pronk::bindings {

/// Around a native call that may log. Needs the GIL at both ends.
class LogScope {
 public:
  /// Lets llama.cpp keep what the logger "pronk.llama" wants to see.
  LogScope();
  /// Hands the lines over; an error in a logging handler is reported as unraisable.
  ~LogScope();
  LogScope(const LogScope&) = delete;
  LogScope& operator=(const LogScope&) = delete;
};

}  // namespace pronk::bindings
