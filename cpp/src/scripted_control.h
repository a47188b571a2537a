// What a test and the contexts of a scripted model share: faults to play, a gate to hold decodes
// at, a record of what happened.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "backend.h"
#include "pronk/testing.h"

namespace pronk::inline v0 {

class ScriptedBackend;

/// Thread-safe. Lock order: mutex_ here, then the memory mutex of a backend; never the other way
/// round.
class ScriptedControl {
 public:
  explicit ScriptedControl(std::optional<testing::ManualClock> clock) : clock_(std::move(clock)) {}

  // For the test; ScriptedModel documents them.
  void add_fault(const testing::Fault& fault);
  void clear_faults();
  bool wait_blocked(std::chrono::nanoseconds timeout, std::int32_t count) const;
  void release_blocked();
  void hold();
  bool wait_held(std::chrono::nanoseconds timeout, std::int32_t count) const;
  void step(std::int32_t n);
  void resume();
  bool wait_decodes(std::uint64_t count, std::chrono::nanoseconds timeout) const;
  void set_delay(std::chrono::nanoseconds per_decode, std::chrono::nanoseconds per_item);
  testing::Counters counters() const;
  std::vector<std::string> violations() const;
  void record(bool on);
  std::vector<testing::RecordedBatch> batches() const;
  std::map<testing::SequenceKey, std::vector<Token>> sequences() const;
  std::int64_t cells_used() const;
  /// Lets go of everything, now and later: nobody is left to do it.
  void shut_down();

  // For the backends.

  /// Plays the faults of make_backend: throws.
  void on_make_backend();
  /// Returns the backend's number.
  std::int32_t enter(ScriptedBackend& backend);
  void leave(ScriptedBackend& backend) noexcept;
  void set_abort(std::int32_t backend, bool on) noexcept;

  struct Decode {
    std::uint64_t call = 0;
    bool aborted = false;
    std::vector<testing::Fault>
        faults;  // those that the backend has to play; sleeps and blocks are over
  };
  /// Waits at the gate, then for the time that the decode takes.
  Decode begin_decode(std::int32_t backend, std::span<const BatchItem> batch);
  /// `applied` items of the batch took effect. `result` is what RecordedBatch::result says.
  void end_decode(std::int32_t backend, const Decode& decode, std::span<const BatchItem> batch,
                  std::size_t applied, std::size_t outputs, const char* result);
  /// False when the removal is to be refused; throws when it is to fail.
  bool on_seq_remove();
  void on_seq_copy();
  void add_violation(const std::string& what);

 private:
  struct Peer {
    ScriptedBackend* backend = nullptr;  // null once it is gone
    bool abort = false;
  };
  bool wait(std::unique_lock<std::mutex>& lock, std::chrono::nanoseconds timeout,
            bool (*done)(const ScriptedControl&, std::int64_t), std::int64_t count) const;
  std::vector<testing::Fault> due(testing::FaultPoint point, std::uint64_t call);
  void spend(std::unique_lock<std::mutex>& lock, std::int32_t backend,
             std::chrono::nanoseconds time);
  template <class Aborted>
  void block(std::unique_lock<std::mutex>& lock, Aborted&& aborted);

  const std::optional<testing::ManualClock> clock_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  // Everything below is guarded by mutex_.
  std::vector<testing::Fault> faults_;
  bool held_ = false;
  bool shut_down_ = false;
  std::int64_t steps_ = 0;    // decodes that may pass while held
  std::int32_t at_gate_ = 0;  // decodes that wait there
  std::int32_t blocked_ = 0;  // calls in kBlock
  std::uint64_t releases_ = 0;
  std::int32_t decoding_ = 0;
  std::chrono::nanoseconds per_decode_{0};
  std::chrono::nanoseconds per_item_{0};
  testing::Counters counters_;
  std::uint64_t make_backend_calls_ = 0;
  std::vector<Peer> peers_;
  std::vector<std::string> violations_;
  bool recording_ = false;
  std::vector<testing::RecordedBatch> batches_;
};

/// Whether the kind is an exception.
bool throws(testing::FaultKind kind);
/// Throws what the kind stands for; does nothing for a kind that throws nothing.
void throw_fault(testing::FaultKind kind, const char* where);

}  // namespace pronk::inline v0
