// The trace event format: one event a line, times in microseconds since the start of the recording.
//
// Tracks: the decode loop, one for each sequence of the pool ("lane"), and asynchronous ones for
// what waits, since any number of tickets and generations wait at once.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "pronk/version.h"
#include "trace.h"

namespace pronk::inline v0 {
namespace {

enum class Shape { kLane, kLoop, kAsync, kCounter };

struct Kind {
  std::string_view name;
  Shape shape;
  std::string_view number;  ///< what the number of an event is; empty for none
  std::array<std::string_view, 4> values;
};

// By TraceKind. `track` is the lane on tracks of lanes, and the context of a batch.
constexpr Kind kKinds[] = {
    {"generation",
     Shape::kLane,
     "generation",
     {"prompt_tokens", "cached_tokens", "completion_tokens", ""}},
    {"prefill", Shape::kLane, "generation", {"tokens", "position", "cached_tokens", ""}},
    {"decode", Shape::kLane, "generation", {"position", "", "", ""}},
    {"step", Shape::kLoop, "", {"tokens", "decode_tokens", "prompt_tokens", ""}},
    {"batch", Shape::kLoop, "", {"tokens", "decode_tokens", "prompt_tokens", "context"}},
    {"sample", Shape::kLoop, "", {"rows", "context", "", ""}},
    {"queued", Shape::kAsync, "generation", {"prompt_tokens", "cached_tokens", "", ""}},
    {"wait for permit", Shape::kAsync, "ticket", {"", "", "", ""}},
    {"permits", Shape::kCounter, "", {"active", "waiting", "", ""}},
    {"pool", Shape::kCounter, "", {"kv_tokens", "kv_cells", "cached_sequences", "running"}},
};

constexpr std::string_view kResults[] = {"",       "stop",      "length", "tool_calls", "cancelled",
                                         "failed", "timed_out", "closed", "running"};

// Shown in the name too, so that it meets the eye.
bool is_remarkable(TraceResult result) {
  return result == TraceResult::kCancelled || result == TraceResult::kFailed ||
         result == TraceResult::kTimedOut || result == TraceResult::kClosed;
}

constexpr int kProcess = 1;
constexpr std::int32_t kLoopThread = 1;
constexpr std::int32_t kFirstLane = 2;

const Kind& kind_of(const TraceEvent& event) {
  return kKinds[static_cast<std::size_t>(event.kind)];
}

class Writer {
 public:
  Writer(const TraceRecording& recording, std::ostream& out) : recording_(recording), out_(out) {}

  void write(const TraceEvent& event) {
    const Kind& kind = kind_of(event);
    switch (kind.shape) {
      case Shape::kLane:
      case Shape::kLoop: {
        open(event, "X", event.begin);
        const std::int32_t thread =
            kind.shape == Shape::kLane ? kFirstLane + event.track : kLoopThread;
        add_thread(thread);
        const Duration duration = clipped(event.end) - clipped(event.begin);
        line_ += ",\"dur\":" + micros(duration);
        close(event);
        break;
      }
      case Shape::kAsync:
        open(event, "b", event.begin);
        add_async(kind, event);
        close(event);
        open(event, "e", event.end);
        add_async(kind, event);
        line_ += '}';
        flush();
        break;
      case Shape::kCounter:
        open(event, "C", event.begin);
        close(event);
        break;
    }
  }

  void name_thread(std::int32_t thread, const std::string& name) {
    metadata("thread_name", thread, "\"name\":\"" + name + "\"");
    metadata("thread_sort_index", thread, "\"sort_index\":" + std::to_string(thread));
  }

  void metadata(std::string_view what, std::int32_t thread, const std::string& args) {
    start_line();
    line_.append("{\"name\":\"").append(what).append("\",\"ph\":\"M\",\"ts\":0,\"pid\":");
    line_ += std::to_string(kProcess);
    add_thread(thread);
    line_ += ",\"args\":{" + args + "}}";
    flush();
  }

 private:
  // What began before the recording did is cut off there.
  TimePoint clipped(TimePoint time) const { return std::max(time, recording_.begin); }

  static std::string micros(Duration duration) {
    const std::int64_t ns = duration.count();
    const std::string fraction = std::to_string(ns % 1000);
    return std::to_string(ns / 1000) + "." + std::string(3 - fraction.size(), '0') + fraction;
  }

  void start_line() {
    line_ += first_ ? "" : ",\n";
    first_ = false;
  }

  void open(const TraceEvent& event, const char* phase, TimePoint time) {
    start_line();
    const Kind& kind = kind_of(event);
    line_.append("{\"name\":\"").append(kind.name);
    if (event.kind == TraceKind::kGeneration) line_ += ' ' + std::to_string(event.number);
    if (is_remarkable(event.result)) line_.append(" (").append(result_of(event)).append(")");
    line_.append("\",\"ph\":\"").append(phase).append("\",\"ts\":");
    line_ += micros(clipped(time) - recording_.begin);
    line_ += ",\"pid\":" + std::to_string(kProcess);
  }

  void add_thread(std::int32_t thread) { line_ += ",\"tid\":" + std::to_string(thread); }

  void add_async(const Kind& kind, const TraceEvent& event) {
    add_thread(kLoopThread);
    line_.append(",\"cat\":\"").append(kind.name).append("\",\"id\":\"");
    line_ += std::to_string(event.number) + "\"";
  }

  void close(const TraceEvent& event) {
    const Kind& kind = kind_of(event);
    line_ += ",\"args\":{";
    const char* separator = "";
    const auto add = [&](std::string_view name, std::string_view value, const char* quote = "") {
      line_.append(separator).append("\"").append(name).append("\":");
      line_.append(quote).append(value).append(quote);
      separator = ",";
    };
    if (!kind.number.empty()) add(kind.number, std::to_string(event.number));
    for (std::size_t i = 0; i < kind.values.size() && !kind.values[i].empty(); ++i) {
      if (event.values[i] >= 0) add(kind.values[i], std::to_string(event.values[i]));
    }
    if (event.result != TraceResult::kNone) add("result", result_of(event), "\"");
    line_ += "}}";
    flush();
  }

  static std::string_view result_of(const TraceEvent& event) {
    return kResults[static_cast<std::size_t>(event.result)];
  }

  void flush() {
    out_.write(line_.data(), static_cast<std::streamsize>(line_.size()));
    line_.clear();
  }

  const TraceRecording& recording_;
  std::ostream& out_;
  std::string line_;
  bool first_ = true;
};

// A generation is recorded at its end. Of those that had none yet, the end of their queueing tells
// the beginning.
void add_running(std::vector<TraceEvent>& events, TimePoint end) {
  std::unordered_set<std::uint64_t> ended;
  for (const TraceEvent& event : events) {
    if (event.kind == TraceKind::kGeneration) ended.insert(event.number);
  }
  for (std::size_t i = 0, n = events.size(); i < n; ++i) {
    TraceEvent event = events[i];
    if (event.kind != TraceKind::kQueued || event.result != TraceResult::kNone ||
        ended.contains(event.number)) {
      continue;
    }
    event.kind = TraceKind::kGeneration;
    event.result = TraceResult::kRunning;
    event.begin = event.end;
    event.end = end;
    event.values[2] = -1;  // how much it will say
    events.push_back(event);
  }
}

}  // namespace

void write_trace_json(TraceRecording recording, std::ostream& out) {
  std::vector<TraceEvent>& events = recording.events;
  add_running(events, recording.end);
  // Viewers nest what begins together in the order of the file.
  std::stable_sort(events.begin(), events.end(), [](const TraceEvent& a, const TraceEvent& b) {
    return std::tuple(a.begin, b.end, a.kind) < std::tuple(b.begin, a.end, b.kind);
  });
  std::int32_t n_lanes = 0;
  for (const TraceEvent& event : events) {
    if (kind_of(event).shape == Shape::kLane) n_lanes = std::max(n_lanes, event.track + 1);
  }

  out << "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"producer\":\"pronk " PRONK_VERSION
         "\",\"dropped_events\":\""
      << std::to_string(recording.dropped) << "\"},\"traceEvents\":[\n";
  Writer writer(recording, out);
  writer.metadata("process_name", kLoopThread, "\"name\":\"pronk\"");
  writer.name_thread(kLoopThread, "decode loop");
  for (std::int32_t lane = 0; lane < n_lanes; ++lane)
    writer.name_thread(kFirstLane + lane, "lane " + std::to_string(lane));
  for (const TraceEvent& event : events) writer.write(event);
  out << "\n]}\n";
}

}  // namespace pronk::inline v0
