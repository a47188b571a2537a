#include "llama_log.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "llama.h"
#include "process.h"
#include "pronk/log.h"
#include "utf8.h"

namespace pronk::inline v0 {
namespace {

constexpr std::size_t kMaxLines = 1024;
constexpr std::size_t kMaxLineBytes = 4096;
constexpr std::size_t kMaxCaptured = 8;

thread_local LogCapture* innermost_capture = nullptr;
thread_local bool as_debug = false;

/// The text as valid UTF-8 without its line end, cut to a bound.
std::string clean(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  std::string result;
  Utf8Decoder decoder;
  decoder.push(text.substr(0, kMaxLineBytes), result);
  if (text.size() > kMaxLineBytes) {
    result += "...";
  } else {
    decoder.finish(result);
  }
  return result;
}

class Log {
 public:
  void add(ggml_log_level level, std::string_view text) {
    // The mutex may have been held by another thread when this process was forked.
    if (process_.forked()) return;
    const std::lock_guard lock(mutex_);
    // A message without a line end is continued by those marked so, if no other thread comes
    // between.
    const bool continues =
        level == GGML_LOG_LEVEL_CONT && !open_.empty() && writer_ == std::this_thread::get_id();
    if (!continues) {
      flush();
      if (level != GGML_LOG_LEVEL_CONT) open_level_ = level_of(level);
      writer_ = std::this_thread::get_id();
    }
    if (open_.size() <= kMaxLineBytes) open_ += text;
    if (!text.empty() && text.back() == '\n') flush();
  }

  std::vector<LogLine> drain() {
    if (process_.forked()) return {};
    const std::lock_guard lock(mutex_);
    std::vector<LogLine> result;
    result.reserve(lines_.size() + 1);
    if (lost_ > 0) {
      result.push_back(
          {LogLevel::kWarning, "log: " + std::to_string(lost_) + " older lines were dropped"});
    }
    std::move(lines_.begin(), lines_.end(), std::back_inserter(result));
    lines_.clear();
    lost_ = 0;
    return result;
  }

  void set_minimum(LogLevel minimum) { minimum_.store(minimum, std::memory_order_relaxed); }

 private:
  static LogLevel level_of(ggml_log_level level) {
    switch (level) {
      case GGML_LOG_LEVEL_ERROR:
        return LogLevel::kError;
      case GGML_LOG_LEVEL_WARN:
        return LogLevel::kWarning;
      case GGML_LOG_LEVEL_DEBUG:
        return LogLevel::kDebug;
      default:
        return LogLevel::kInfo;
    }
  }

  void flush() {
    if (open_level_ >= minimum_.load(std::memory_order_relaxed)) {
      if (std::string line = clean(open_); !line.empty()) {
        if (lines_.size() == kMaxLines) {
          lines_.pop_front();
          ++lost_;
        }
        lines_.push_back({open_level_, std::move(line)});
      }
    }
    open_.clear();
  }

  const ProcessBound process_;
  std::atomic<LogLevel> minimum_{LogLevel::kInfo};
  std::mutex mutex_;
  std::deque<LogLine> lines_;              // guarded by mutex_
  std::uint64_t lost_ = 0;                 // guarded by mutex_
  std::string open_;                       // guarded by mutex_; a line that has not ended
  LogLevel open_level_ = LogLevel::kInfo;  // guarded by mutex_
  std::thread::id writer_;                 // guarded by mutex_; of open_
};

/// Never destroyed: devices log while static objects go.
Log& log() {
  static Log* const instance = new Log;
  return *instance;
}

void on_log(ggml_log_level level, const char* text, void*) {
  // Called from C: no exception may leave, and a lost line is the lesser evil when memory is short.
  try {
    if (text == nullptr) return;
    if (innermost_capture != nullptr &&
        (level == GGML_LOG_LEVEL_ERROR || level == GGML_LOG_LEVEL_WARN)) {
      LogCapture::record(level == GGML_LOG_LEVEL_ERROR, clean(text));
    }
    log().add(as_debug ? GGML_LOG_LEVEL_DEBUG : level, text);
  } catch (...) {
  }
}

}  // namespace

void LogCapture::record(bool error, const std::string& text) {
  for (LogCapture* capture = innermost_capture; capture != nullptr; capture = capture->outer_) {
    std::vector<std::string>& lines = error ? capture->errors_ : capture->warnings_;
    if (!text.empty() && lines.size() < kMaxCaptured) lines.push_back(text);
  }
}

void install_log_hook() {
  static const bool installed = [] {
    llama_log_set(on_log, nullptr);
    return true;
  }();
  (void)installed;
}

LogAsDebug::LogAsDebug() : outer_(as_debug) { as_debug = true; }
LogAsDebug::~LogAsDebug() { as_debug = outer_; }

void log_warning(const std::string& text) {
  on_log(GGML_LOG_LEVEL_WARN, (text + '\n').c_str(), nullptr);
}

LogCapture::LogCapture() : outer_(innermost_capture) { innermost_capture = this; }
LogCapture::~LogCapture() { innermost_capture = outer_; }

std::string LogCapture::reason() const {
  const std::vector<std::string>& lines = errors_.empty() ? warnings_ : errors_;
  if (lines.empty()) return "no reason given";
  std::string result;
  for (const std::string& line : lines) {
    if (!result.empty()) result += "; ";
    // "function_name: text": the name means nothing to a caller.
    const std::size_t colon = line.find(": ");
    const bool named =
        colon != std::string::npos &&
        std::all_of(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(colon), [](char c) {
          return c == '_' || c == ':' || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        });
    result += named ? line.substr(colon + 2) : line;
  }
  return result;
}

bool LogCapture::out_of_memory() const {
  return std::any_of(errors_.begin(), errors_.end(), [](const std::string& line) {
    for (const char* sign :
         {"failed to allocate", "out of memory", "insufficient memory", "bad_alloc",
          "unable to allocate", "failed to reserve", "Cannot allocate memory"}) {
      if (line.find(sign) != std::string::npos) return true;
    }
    return false;
  });
}

std::optional<std::uint64_t> LogCapture::failed_bytes() const {
  constexpr std::string_view sign = "of size ";
  for (const std::string& line : errors_) {
    const std::size_t at = line.find(sign);
    if (at == std::string::npos) continue;
    std::uint64_t bytes = 0;
    std::size_t i = at + sign.size();
    for (; i < line.size() && line[i] >= '0' && line[i] <= '9' && bytes < (1ull << 59); ++i) {
      bytes = bytes * 10 + static_cast<std::uint64_t>(line[i] - '0');
    }
    if (bytes > 0) return bytes;
  }
  return std::nullopt;
}

std::vector<LogLine> drain_log() { return log().drain(); }
void set_log_level(LogLevel minimum) { log().set_minimum(minimum); }

}  // namespace pronk::inline v0
