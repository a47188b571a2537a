// For tests of programs that use pronk: a model that is a script instead of weights, and a clock
// that a test moves. Needs no model file; answers in microseconds; plays every failure that a real
// model can show.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pronk/api.h"
#include "pronk/engine.h"
#include "pronk/params.h"

namespace pronk::inline v0 {

class Clock;

namespace testing {

/// Time that stands still until advance(). A handle: copies share one clock. Functions may be
/// called from any thread.
class PRONK_API ManualClock {
 public:
  ManualClock();

  std::chrono::nanoseconds now() const;  ///< since creation
  /// Moves the time forward and wakes everything that waits on this clock. Must not be called with
  /// a lock held that a waiter waits with. Throws InvalidArgumentError on a negative step.
  void advance(std::chrono::nanoseconds by);
  /// Waits that are blocked on this clock right now.
  std::int32_t waiters() const;
  /// Waits (in real time) until at least `count` waits are blocked on this clock; false when
  /// `timeout` comes first.
  bool wait_for_waiters(std::int32_t count, std::chrono::nanoseconds timeout) const;

  /// What SchedulerOptions::clock takes.
  std::shared_ptr<Clock> clock() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

struct ScriptedOptions {
  /// Texts of the tokens 0, 1, 2, ...; empty stands for the 256 single bytes. <bos>, <eos> and
  /// <eot> follow.
  std::vector<std::string> pieces;
  MemoryKind memory_kind = MemoryKind::kPlain;  ///< what the memory of a sequence allows
  std::int32_t n_swa = 0;  ///< tokens in the window; kSlidingWindow only, and needed there
  std::int32_t n_ctx_train = 4096;
  bool add_bos = false;
  std::uint64_t seed = 0;  ///< another seed is another model: other answers to the same prompts
  /// Jinja; none is ChatML, with tools in the system message and calls as
  /// <tool_call>{"name": ..., "arguments": {...}}</tool_call>. An empty one is no template.
  std::optional<std::string> chat_template;
  std::optional<ManualClock> clock;  ///< delays advance it instead of sleeping
};

/// Which call goes wrong.
enum class FaultPoint : int { kDecode = 0, kSeqRemove, kSeqCopy, kMakeBackend };

/// How it goes wrong.
enum class FaultKind : int {
  kNoSlot = 0,        ///< decode: no room in the KV cache
  kAborted,           ///< decode: aborted
  kInvalidBatch,      ///< decode: refused
  kNoMemory,          ///< decode: allocation failed; make_backend: InsufficientMemoryError
  kFailed,            ///< decode: compute failed; make_backend: BackendError
  kRuntimeError,      ///< any: throws std::runtime_error
  kBadAlloc,          ///< any: throws std::bad_alloc
  kForeignException,  ///< any: throws something that is no std::exception
  kSleep,             ///< decode: takes `duration` longer
  kBlock,             ///< decode: does not return until release_blocked(), or an abort;
                      ///< make_backend: until release_blocked()
  kNanLogits,         ///< decode: all logits are NaN
  kImpossibleLogits,  ///< decode: all logits are -infinity
  kReturnFalse,       ///< seq_remove: refuses
};

struct Fault {
  FaultPoint point = FaultPoint::kDecode;
  FaultKind kind = FaultKind::kFailed;
  std::uint64_t call =
      0;  ///< which call of `point`, counted from 1 over all contexts; 0 is the next one
  std::int64_t times = 1;  ///< so many calls in a row; -1 from there on
  /// Batch items that have taken effect when decode fails. kNoSlot and kInvalidBatch apply nothing.
  std::int32_t applied = 0;
  std::chrono::nanoseconds duration{0};  ///< kSleep
  bool ignore_abort = false;             ///< kBlock: a hung device
};

/// Key of a sequence: which context, in order of creation, and which sequence in it.
using SequenceKey = std::pair<std::int32_t, std::int32_t>;

struct Counters {
  std::uint64_t decode_calls = 0;  ///< begun (a held one not yet)
  std::uint64_t decodes_finished = 0;
  std::uint64_t seq_remove_calls = 0;
  std::uint64_t seq_copy_calls = 0;
  std::uint64_t items = 0;    ///< tokens that went through the model
  std::uint64_t outputs = 0;  ///< rows of logits
  std::int32_t backends_made = 0;
  std::int32_t backends_alive = 0;
  std::int32_t most_decoding = 0;   ///< most decode calls under way at once
  std::int32_t most_sequences = 0;  ///< most different sequences in one batch
  std::map<SequenceKey, std::uint64_t> sequence_items;
};

struct RecordedItem {
  Token token = 0;
  std::int32_t pos = 0;
  std::int32_t seq = 0;
  bool output = false;
};

struct RecordedBatch {
  std::int32_t backend = 0;
  std::uint64_t call = 0;
  std::vector<RecordedItem> items;
  std::string result;  ///< "ok", "no_slot", ..., or "exception"
};

/// Greedy decoding follows a rule that mixes every visible token of the sequence, so a wrong prefix
/// reuse, a leaked cell or a wrong order changes the text; expected() computes the same without a
/// context. Functions may be called from any thread. Dropping the model resumes and releases all
/// that it holds.
class PRONK_API ScriptedModel {
 public:
  /// Throws InvalidArgumentError.
  explicit ScriptedModel(const ScriptedOptions& options = {});
  ~ScriptedModel();
  ScriptedModel(const ScriptedModel&) = delete;
  ScriptedModel& operator=(const ScriptedModel&) = delete;

  /// Works wherever a loaded engine works.
  std::shared_ptr<InferenceEngine> engine() const;

  // What it says.

  /// Cuts bytes, which need not be whole UTF-8, into the longest pieces; adds no <bos>.
  std::vector<Token> tokenize(std::string_view bytes) const;
  /// After exactly `prompt`, greedy decoding says `completion`, then <eos>. Texts are tokenized as
  /// for a generation.
  void script(const std::vector<Token>& prompt, const std::vector<Token>& completion);
  void script(std::string_view prompt, std::string_view completion);
  /// What greedy decoding says after `prompt`, at most `n` tokens, the end token not included.
  std::vector<Token> expected(const std::vector<Token>& prompt, std::int32_t n) const;
  std::vector<Token> expected(std::string_view prompt, std::int32_t n) const;

  // How it fails.

  /// Throws InvalidArgumentError on a kind that its point cannot show.
  void add_fault(const Fault& fault);
  void clear_faults();
  /// Waits until `count` calls are blocked by kBlock; false when `timeout` comes first.
  bool wait_blocked(std::chrono::nanoseconds timeout, std::int32_t count = 1) const;
  /// Lets every blocked call go on.
  void release_blocked();

  // When it runs.

  /// From now on every decode waits at its entry.
  void hold();
  /// Waits until `count` decodes wait at their entry; false when `timeout` comes first.
  bool wait_held(std::chrono::nanoseconds timeout, std::int32_t count = 1) const;
  /// Lets the next `n` decodes pass, in addition to those already let.
  void step(std::int32_t n = 1);
  /// Ends hold().
  void resume();
  /// Waits until `count` decodes in all have finished; false when `timeout` comes first.
  bool wait_decodes(std::uint64_t count, std::chrono::nanoseconds timeout) const;
  /// Time that every decode takes. Sleeps, or advances ScriptedOptions::clock.
  void set_delay(std::chrono::nanoseconds per_decode, std::chrono::nanoseconds per_item = {});

  // What was done to it.

  Counters counters() const;
  /// Uses that would have aborted the process with a real model; each was also thrown as
  /// std::logic_error.
  std::vector<std::string> violations() const;
  /// Starts or stops keeping every batch.
  void record(bool on);
  std::vector<RecordedBatch> batches() const;
  /// The tokens that each non-empty sequence of each living context holds.
  std::map<SequenceKey, std::vector<Token>> sequences() const;
  /// KV cells in use, over all living contexts; one that several sequences share counts once.
  std::int64_t cells_used() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace testing
}  // namespace pronk::inline v0
