#include "trace.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "pronk/error.h"

namespace pronk::inline v0 {

Trace::Trace(std::shared_ptr<Clock> clock) : clock_(std::move(clock)) {}

void Trace::start(std::size_t max_events) {
  if (max_events < 1 || max_events > kMaxEvents) {
    throw InvalidArgumentError("max_events: got " + std::to_string(max_events) +
                               ", expected an integer in [1, " + std::to_string(kMaxEvents) +
                               "], choose a value in that range");
  }
  std::lock_guard lock(mutex_);
  if (on()) {
    throw InvalidArgumentError(
        "start_trace: got a second call, expected no trace to be recorded, call stop_trace() "
        "first");
  }
  max_events_ = max_events;
  added_ = lost_ = 0;
  begin_ = clock_->now();
  on_.store(true, std::memory_order_relaxed);
}

void Trace::add(const TraceEvent& event) noexcept {
  std::lock_guard lock(mutex_);
  if (!on()) return;
  const std::size_t at = added_ % max_events_;
  if (at / kBlock == blocks_.size()) {
    try {
      blocks_.push_back(std::make_unique<Block>());
    } catch (const std::bad_alloc&) {
      ++lost_;
      return;
    }
  }
  (*blocks_[at / kBlock])[at % kBlock] = event;
  ++added_;
}

TraceRecording Trace::stop() {
  TraceRecording recording;
  std::vector<std::unique_ptr<Block>> blocks;
  std::size_t first = 0;
  std::size_t size = 0;
  std::size_t capacity = 0;
  {
    std::lock_guard lock(mutex_);
    if (!on()) {
      throw InvalidArgumentError(
          "stop_trace: got no trace to end, expected one that is recorded, call start_trace() "
          "first");
    }
    on_.store(false, std::memory_order_relaxed);
    blocks.swap(blocks_);
    capacity = max_events_;
    size = static_cast<std::size_t>(std::min<std::uint64_t>(added_, capacity));
    first = added_ > capacity ? added_ % capacity : 0;
    recording.begin = begin_;
    recording.end = clock_->now();
    recording.dropped = added_ - size + lost_;
  }
  // Copied with the mutex free: the decode thread does not wait for it.
  recording.events.reserve(size);
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t at = (first + i) % capacity;
    recording.events.push_back((*blocks[at / kBlock])[at % kBlock]);
  }
  return recording;
}

}  // namespace pronk::inline v0
