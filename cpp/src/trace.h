// Records what the scheduler does, event by event, for a timeline. Off, it costs its callers one
// load and one branch.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <ostream>
#include <vector>

#include "clock.h"

namespace pronk::inline v0 {

/// In this order an event comes before those that it encloses.
enum class TraceKind : std::uint8_t {
  kGeneration,  ///< on its lane: first step to end
  kPrefill,     ///< on its lane: a chunk of a prompt
  kDecode,      ///< on its lane: one token
  kStep,        ///< a round of the decode loop
  kBatch,       ///< one decode call of a context
  kSample,      ///< choosing tokens from its logits and handing them out
  kQueued,      ///< a generation: from the call to the first step
  kWait,        ///< a ticket: its time in the queue for a permit
  kPermits,     ///< counters of the gate
  kPool,        ///< counters of the pool
};

/// How something ended. kNone says nothing about it.
enum class TraceResult : std::uint8_t {
  kNone = 0,
  kStop,
  kLength,
  kToolCalls,
  kCancelled,
  kFailed,
  kTimedOut,
  kClosed,
  kRunning,  ///< not yet, when the recording ended
};

/// What `track`, `number` and `values` mean for each kind says the table in trace_json.cpp.
struct TraceEvent {
  TraceKind kind{};
  TraceResult result = TraceResult::kNone;
  std::int32_t track = 0;
  TimePoint begin, end;
  std::uint64_t number = 0;
  std::array<std::int64_t, 4> values{};  ///< a negative one is not known
};

/// What a recording holds, oldest first.
struct TraceRecording {
  TimePoint begin, end;
  std::uint64_t dropped = 0;  ///< older events that gave way
  std::vector<TraceEvent> events;
};

/// Functions may be called from any thread, and with the locks of others held: it takes none but
/// its own.
class Trace {
 public:
  static constexpr std::size_t kMaxEvents = std::size_t{1} << 26;

  explicit Trace(std::shared_ptr<Clock> clock);

  bool on() const noexcept { return on_.load(std::memory_order_relaxed); }
  TimePoint now() const { return clock_->now(); }

  /// Keeps the last `max_events` events. Throws InvalidArgumentError.
  void start(std::size_t max_events);
  /// Throws InvalidArgumentError when nothing was started.
  TraceRecording stop();
  /// Does nothing unless started. Where memory is short the event counts as dropped.
  void add(const TraceEvent& event) noexcept;

 private:
  static constexpr std::size_t kBlock = 4096;
  using Block = std::array<TraceEvent, kBlock>;

  const std::shared_ptr<Clock> clock_;
  std::atomic<bool> on_{false};
  std::mutex mutex_;
  std::vector<std::unique_ptr<Block>> blocks_;  // guarded by mutex_; a ring, grown as it fills
  std::size_t max_events_ = 0;                  // guarded by mutex_
  std::uint64_t added_ = 0;                     // guarded by mutex_
  std::uint64_t lost_ = 0;                      // guarded by mutex_; for want of memory
  TimePoint begin_;                             // guarded by mutex_
};

/// Writes a recording in the trace event format, which Perfetto and chrome://tracing open.
void write_trace_json(TraceRecording recording, std::ostream& out);

}  // namespace pronk::inline v0
