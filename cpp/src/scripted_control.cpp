#include "scripted_control.h"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <utility>

#include "clock.h"
#include "pronk/error.h"
#include "scripted_backend.h"

namespace pronk::inline v0 {

using testing::Fault;
using testing::FaultKind;
using testing::FaultPoint;

namespace {

// Thrown by kForeignException: not derived from std::exception.
struct ForeignException {};

bool can_show(FaultPoint point, FaultKind kind) {
  if (throws(kind)) return true;
  switch (point) {
    case FaultPoint::kDecode:
      return kind != FaultKind::kReturnFalse;
    case FaultPoint::kSeqRemove:
      return kind == FaultKind::kReturnFalse;
    case FaultPoint::kSeqCopy:
      return false;
    case FaultPoint::kMakeBackend:
      return kind == FaultKind::kNoMemory || kind == FaultKind::kFailed ||
             kind == FaultKind::kBlock;
  }
  return false;
}

bool applies_nothing(FaultKind kind) {
  return kind == FaultKind::kNoSlot || kind == FaultKind::kInvalidBatch;
}

void require(bool condition, const std::string& message) {
  if (!condition) throw InvalidArgumentError(message);
}

}  // namespace

bool throws(FaultKind kind) {
  return kind == FaultKind::kRuntimeError || kind == FaultKind::kBadAlloc ||
         kind == FaultKind::kForeignException;
}

void throw_fault(FaultKind kind, const char* where) {
  if (kind == FaultKind::kRuntimeError) {
    throw std::runtime_error(std::string(where) + ": scripted fault");
  }
  if (kind == FaultKind::kBadAlloc) throw std::bad_alloc();
  if (kind == FaultKind::kForeignException) throw ForeignException();
}

void ScriptedControl::add_fault(const Fault& fault) {
  require(can_show(fault.point, fault.kind),
          "fault: got kind " + std::to_string(static_cast<int>(fault.kind)) + " at point " +
              std::to_string(static_cast<int>(fault.point)) +
              ", expected a kind that can happen at that point");
  require(fault.times > 0 || fault.times == -1,
          "times: got " + std::to_string(fault.times) + ", expected 1 or more, or -1 for ever");
  require(fault.applied >= 0 && (fault.applied == 0 || !applies_nothing(fault.kind)),
          "applied: got " + std::to_string(fault.applied) +
              ", expected 0 or more, and 0 for a decode that applies nothing");
  require(fault.duration >= fault.duration.zero(),
          "duration: got " + std::to_string(fault.duration.count()) + " ns, expected 0 or more");
  const std::lock_guard lock(mutex_);
  faults_.push_back(fault);
  if (fault.call == 0) {
    std::uint64_t done = counters_.decode_calls;
    if (fault.point == FaultPoint::kSeqRemove) done = counters_.seq_remove_calls;
    if (fault.point == FaultPoint::kSeqCopy) done = counters_.seq_copy_calls;
    if (fault.point == FaultPoint::kMakeBackend) done = make_backend_calls_;
    faults_.back().call = done + 1;
  }
}

void ScriptedControl::clear_faults() {
  const std::lock_guard lock(mutex_);
  faults_.clear();
}

std::vector<Fault> ScriptedControl::due(FaultPoint point, std::uint64_t call) {
  std::vector<Fault> due;
  for (const auto& fault : faults_) {
    if (fault.point != point || call < fault.call) continue;
    if (fault.times < 0 || call - fault.call < static_cast<std::uint64_t>(fault.times)) {
      due.push_back(fault);
    }
  }
  return due;
}

bool ScriptedControl::wait(std::unique_lock<std::mutex>& lock, std::chrono::nanoseconds timeout,
                           bool (*done)(const ScriptedControl&, std::int64_t),
                           std::int64_t count) const {
  const TimePoint deadline = deadline_after(Clock::steady()->now(), timeout);
  while (!done(*this, count)) {
    if (Clock::steady()->now() >= deadline) return false;
    Clock::steady()->wait_until(changed_, lock, deadline);
  }
  return true;
}

bool ScriptedControl::wait_blocked(std::chrono::nanoseconds timeout, std::int32_t count) const {
  std::unique_lock lock(mutex_);
  return wait(
      lock, timeout, [](const ScriptedControl& self, std::int64_t n) { return self.blocked_ >= n; },
      count);
}

void ScriptedControl::release_blocked() {
  const std::lock_guard lock(mutex_);
  ++releases_;
  changed_.notify_all();
}

void ScriptedControl::hold() {
  const std::lock_guard lock(mutex_);
  held_ = !shut_down_;
  steps_ = 0;
}

bool ScriptedControl::wait_held(std::chrono::nanoseconds timeout, std::int32_t count) const {
  std::unique_lock lock(mutex_);
  return wait(
      lock, timeout,
      [](const ScriptedControl& self, std::int64_t n) {
        // One that was let pass but has not woken up yet is not held.
        return self.held_ && self.at_gate_ - self.steps_ >= n;
      },
      count);
}

void ScriptedControl::step(std::int32_t n) {
  require(n > 0, "step: got " + std::to_string(n) + ", expected 1 or more");
  const std::lock_guard lock(mutex_);
  require(held_, "step: got a call while nothing is held, expected hold() first");
  steps_ += n;
  changed_.notify_all();
}

void ScriptedControl::resume() {
  const std::lock_guard lock(mutex_);
  held_ = false;
  steps_ = 0;
  changed_.notify_all();
}

void ScriptedControl::shut_down() {
  const std::lock_guard lock(mutex_);
  shut_down_ = true;
  held_ = false;
  changed_.notify_all();
}

bool ScriptedControl::wait_decodes(std::uint64_t count, std::chrono::nanoseconds timeout) const {
  std::unique_lock lock(mutex_);
  return wait(
      lock, timeout,
      [](const ScriptedControl& self, std::int64_t n) {
        return self.counters_.decodes_finished >= static_cast<std::uint64_t>(n);
      },
      static_cast<std::int64_t>(count));
}

void ScriptedControl::set_delay(std::chrono::nanoseconds per_decode,
                                std::chrono::nanoseconds per_item) {
  require(per_decode.count() >= 0 && per_item.count() >= 0,
          "delay: got " + std::to_string(per_decode.count()) + " ns and " +
              std::to_string(per_item.count()) + " ns, expected 0 or more");
  const std::lock_guard lock(mutex_);
  per_decode_ = per_decode;
  per_item_ = per_item;
}

testing::Counters ScriptedControl::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

std::vector<std::string> ScriptedControl::violations() const {
  const std::lock_guard lock(mutex_);
  return violations_;
}

void ScriptedControl::record(bool on) {
  const std::lock_guard lock(mutex_);
  recording_ = on;
}

std::vector<testing::RecordedBatch> ScriptedControl::batches() const {
  const std::lock_guard lock(mutex_);
  return batches_;
}

std::map<testing::SequenceKey, std::vector<Token>> ScriptedControl::sequences() const {
  std::map<testing::SequenceKey, std::vector<Token>> result;
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i].backend == nullptr) continue;
    std::int32_t seq = 0;
    for (auto& tokens : peers_[i].backend->sequences()) {
      if (!tokens.empty()) result[{static_cast<std::int32_t>(i), seq}] = std::move(tokens);
      ++seq;
    }
  }
  return result;
}

std::int64_t ScriptedControl::cells_used() const {
  const std::lock_guard lock(mutex_);
  std::int64_t used = 0;
  for (const auto& peer : peers_) {
    if (peer.backend != nullptr) used += peer.backend->cells_used();
  }
  return used;
}

template <class Aborted>
void ScriptedControl::block(std::unique_lock<std::mutex>& lock, Aborted&& aborted) {
  const std::uint64_t before = releases_;
  ++blocked_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return shut_down_ || releases_ != before || aborted(); });
  --blocked_;
}

void ScriptedControl::on_make_backend() {
  std::unique_lock lock(mutex_);
  const auto faults = due(FaultPoint::kMakeBackend, ++make_backend_calls_);
  for (const auto& fault : faults) {
    if (fault.kind == FaultKind::kBlock) {
      block(lock, [] { return false; });
      continue;
    }
    throw_fault(fault.kind, "make_backend");
    if (fault.kind == FaultKind::kNoMemory) {
      throw InsufficientMemoryError("context: got a scripted lack of memory, expected to fit");
    }
    throw BackendError("context: got a scripted failure, expected a context");
  }
}

std::int32_t ScriptedControl::enter(ScriptedBackend& backend) {
  const std::lock_guard lock(mutex_);
  peers_.push_back({&backend, false});
  ++counters_.backends_alive;
  return counters_.backends_made++;
}

void ScriptedControl::leave(ScriptedBackend& backend) noexcept {
  const std::lock_guard lock(mutex_);
  for (auto& peer : peers_) {
    if (peer.backend == &backend) peer.backend = nullptr;
  }
  --counters_.backends_alive;
}

void ScriptedControl::set_abort(std::int32_t backend, bool on) noexcept {
  const std::lock_guard lock(mutex_);
  peers_[static_cast<std::size_t>(backend)].abort = on;
  changed_.notify_all();
}

void ScriptedControl::spend(std::unique_lock<std::mutex>& lock, std::int32_t backend,
                            std::chrono::nanoseconds time) {
  if (time.count() == 0) return;
  if (clock_) {
    // Wakes threads that may call into this object.
    lock.unlock();
    testing::ManualClock(*clock_).advance(time);
    lock.lock();
    return;
  }
  const TimePoint deadline = deadline_after(Clock::steady()->now(), time);
  while (!shut_down_ && !peers_[static_cast<std::size_t>(backend)].abort &&
         Clock::steady()->now() < deadline) {
    Clock::steady()->wait_until(changed_, lock, deadline);
  }
}

ScriptedControl::Decode ScriptedControl::begin_decode(std::int32_t backend,
                                                      std::span<const BatchItem> batch) {
  std::set<std::int32_t> sequences;
  for (const auto& item : batch) sequences.insert(item.seq);
  const auto aborted = [&] { return peers_[static_cast<std::size_t>(backend)].abort; };

  std::unique_lock lock(mutex_);
  counters_.most_decoding = std::max(counters_.most_decoding, ++decoding_);
  counters_.most_sequences =
      std::max(counters_.most_sequences, static_cast<std::int32_t>(sequences.size()));
  if (held_ && !aborted()) {
    ++at_gate_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !held_ || steps_ > 0 || aborted(); });
    --at_gate_;
    if (held_ && steps_ > 0 && !aborted()) --steps_;
  }

  Decode decode;
  decode.call = ++counters_.decode_calls;
  auto time = per_decode_ + per_item_ * static_cast<std::int64_t>(batch.size());
  for (const auto& fault : due(FaultPoint::kDecode, decode.call)) {
    if (fault.kind == FaultKind::kSleep) {
      time += fault.duration;
    } else {
      decode.faults.push_back(fault);
    }
  }
  spend(lock, backend, time);
  for (const auto& fault : decode.faults) {
    if (fault.kind != FaultKind::kBlock) continue;
    block(lock, [&] { return !fault.ignore_abort && aborted(); });
  }
  std::erase_if(decode.faults, [](const Fault& f) { return f.kind == FaultKind::kBlock; });
  decode.aborted = aborted();
  return decode;
}

void ScriptedControl::end_decode(std::int32_t backend, const Decode& decode,
                                 std::span<const BatchItem> batch, std::size_t applied,
                                 std::size_t outputs, const char* result) {
  const std::lock_guard lock(mutex_);
  --decoding_;
  ++counters_.decodes_finished;
  counters_.items += applied;
  counters_.outputs += outputs;
  for (const auto& item : batch.first(applied)) ++counters_.sequence_items[{backend, item.seq}];
  if (recording_) {
    testing::RecordedBatch record{backend, decode.call, {}, result};
    for (const auto& item : batch) {
      record.items.push_back({item.token, item.pos, item.seq, item.output});
    }
    batches_.push_back(std::move(record));
  }
  changed_.notify_all();
}

bool ScriptedControl::on_seq_remove() {
  std::vector<Fault> faults;
  {
    const std::lock_guard lock(mutex_);
    faults = due(FaultPoint::kSeqRemove, ++counters_.seq_remove_calls);
  }
  for (const auto& fault : faults) throw_fault(fault.kind, "seq_remove");
  return faults.empty();
}

void ScriptedControl::on_seq_copy() {
  std::vector<Fault> faults;
  {
    const std::lock_guard lock(mutex_);
    faults = due(FaultPoint::kSeqCopy, ++counters_.seq_copy_calls);
  }
  for (const auto& fault : faults) throw_fault(fault.kind, "seq_copy");
}

void ScriptedControl::add_violation(const std::string& what) {
  const std::lock_guard lock(mutex_);
  violations_.push_back(what);
}

}  // namespace pronk::inline v0
