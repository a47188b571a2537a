// llama.cpp's log. Nothing of it is ever printed: it waits here to be fetched.
#pragma once

#include <string>
#include <vector>

#include "pronk/api.h"

namespace pronk::inline v0 {

/// In ascending order.
enum class LogLevel : int { kDebug = 0, kInfo, kWarning, kError };

/// One line of the log.
struct LogLine {
  LogLevel level = LogLevel::kInfo;
  std::string text;  ///< valid UTF-8, one line without its end
};

/// Moves out the lines logged since the last call, oldest first. Only the latest 1024 are kept;
/// where older ones were lost, the first line returned says how many. From any thread.
PRONK_API std::vector<LogLine> drain_log();

/// Lines below `minimum` are not kept. The default is kInfo. From any thread.
PRONK_API void set_log_level(LogLevel minimum);

}  // namespace pronk::inline v0
