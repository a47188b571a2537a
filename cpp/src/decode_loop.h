// The one thread that owns the contexts of a pool: it builds batches, decodes, samples and hands
// out text.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "backend.h"
#include "batch_policy.h"
#include "clock.h"
#include "engine_impl.h"
#include "errands.h"
#include "generation_state.h"
#include "process.h"
#include "pronk/statistics.h"
#include "run.h"
#include "sequence_pool.h"
#include "step_times.h"
#include "thread_governor.h"
#include "trace.h"
#include "workers.h"

namespace pronk::inline v0 {

struct LoopOptions {
  std::int32_t n_lanes = 1;  ///< most generations at once
  std::int32_t n_ctx = 0;    ///< tokens of one generation, prompt and completion together
  PolicyOptions policy;
  /// Makes context number `index`, at the start and again after a fault.
  std::function<std::unique_ptr<Backend>(std::int32_t index)> make_context;
  bool exact_reuse = false;           ///< see SequencePoolOptions::exact_chunk
  std::int64_t max_idle_tokens = -1;  ///< see SequencePoolOptions::max_idle_tokens
  bool consecutive_lanes = false;     ///< see SequencePoolOptions::n_lanes
  bool share_prefixes =
      false;  ///< lanes of a context wait for a common prefix that one of them is evaluating
  bool share_cells = false;  ///< see SequencePoolOptions::share_cells
  std::int32_t n_contexts = 1;
  // For the statistics.
  std::string kv, kv_reason;
  std::string flash_attention, flash_attention_reason;
  std::string type_k, type_v, kv_type_reason;
  std::string n_ctx_reason;
  std::int32_t n_cached = 0;
  std::string n_cached_reason;
  std::int32_t n_sampling_threads = 1;
  std::int32_t n_threads = 1;  ///< compute threads of a context
  bool adapt_threads = false;  ///< use fewer of them where that is faster
};

class DecodeLoop : public std::enable_shared_from_this<DecodeLoop> {
 public:
  /// Creates the contexts; throws what make_context throws.
  DecodeLoop(const LoopOptions& options, std::shared_ptr<InferenceEngine> engine,
             std::shared_ptr<Clock> clock, std::shared_ptr<Trace> trace);
  ~DecodeLoop();

  /// Starts the thread. Without it, step() is to be called by hand.
  void start();

  // --- any thread
  /// Takes over a generation, which has a permit. False after stop().
  bool submit(std::shared_ptr<GenerationState> generation);
  /// A generation wants to be cancelled: stops the running decode if nobody else is in it.
  void interrupt();
  /// Has everything cancelled and the thread end, without waiting for it.
  void request_stop();
  /// The same, waiting for the thread in real time. False when it did not end within `timeout`: it
  /// is then left to itself and its generations fail. `look_up` is called now and then during the
  /// wait; it may throw to end that.
  bool stop(Duration timeout, const std::function<void()>& look_up = {});
  void fill(Statistics& statistics) const;
  std::int32_t n_ctx() const noexcept { return options_.n_ctx; }
  /// What the contexts took when they were made.
  const std::vector<DeviceMemory>& memory() const noexcept { return memory_; }
  std::int32_t n_lanes() const noexcept { return options_.n_lanes; }

  // --- the decode thread, or a test in its place
  /// One round: takes in new work, drops cancelled work, decodes, samples. False when there was
  /// nothing to do.
  bool step();
  const SequencePool& sequences() const noexcept { return *sequences_; }

 private:
  /// Decodes failed in a row after which the pool reports itself unhealthy.
  static constexpr std::int32_t kUnhealthyAfter = 3;

  struct Counters {
    std::uint64_t generations = 0, completed = 0, cancelled = 0, failed = 0;
    std::uint64_t prompt_tokens = 0, evaluated = 0, completion_tokens = 0, steps = 0;
    std::int32_t running = 0, cached_sequences = 0;
    std::uint64_t kv_tokens = 0, kv_cells = 0;
    ReuseCounters reuse;
    bool healthy = true;
    std::int32_t n_threads = 0;
  };
  struct Batch {
    std::int32_t context = 0;
    std::vector<Run*> runs;             ///< one per slice
    std::vector<std::int32_t> sizes;    ///< tokens per slice
    std::vector<std::int32_t> outputs;  ///< batch index of a slice's logits row, -1 for none
    std::vector<BatchItem> items;
  };

  /// Tokens that the running step has evaluated so far.
  struct Tally {
    std::int32_t decode = 0, prompt = 0;
    std::int32_t tokens() const { return decode + prompt; }
  };
  struct Pick {
    Run* run = nullptr;
    std::span<const float> row;
  };

  void run();
  void admit();
  bool must_wait(const GenerationState& generation, bool waited);
  void admit_one(const std::shared_ptr<GenerationState>& generation);
  void end_cancelled();
  void mend_contexts();
  void free_context(std::int32_t context);
  void context_lost(std::int32_t context, const std::string& what);
  void step_context(std::int32_t context);
  void fill_batch(const BatchPlan& plan, std::int32_t context);
  void decode_batch();
  bool enter_decode();
  void leave_decode();
  void batch_failed(DecodeStatus status);
  void context_threw(const std::string& what);
  void sample_batch();
  void send_away(Run& run, std::span<const float> row);
  bool wait_for_chosen(Duration at_most);
  void take_chosen();
  void take(Run& run);
  void append(Run& run, Token token, TokenLogprob* logprob);
  void end_run(Run& run, FinishReason reason, std::exception_ptr error);
  void end_unstarted(const std::shared_ptr<GenerationState>& generation, std::exception_ptr error);
  void end_all(std::exception_ptr error);
  void ring_later(std::shared_ptr<Mailbox> mailbox);
  void ring_mailboxes();
  void publish(double step_seconds);
  std::int32_t lane_of(const Sequence& sequence) const;
  void trace_batch(TimePoint begin, TimePoint end, DecodeStatus status) const;
  void trace_sample(TimePoint begin) const;
  void trace_step(TimePoint begin, TimePoint end) const;

  const LoopOptions options_;
  const std::shared_ptr<InferenceEngine> engine_;
  const std::shared_ptr<Clock> clock_;
  const std::shared_ptr<Trace> trace_;
  const ProcessBound process_;
  std::vector<DeviceMemory> memory_;  // set by the constructor

  // The decode thread's own.
  std::vector<std::unique_ptr<Backend>> contexts_;
  std::unique_ptr<SequencePool> sequences_;
  std::vector<BatchPolicy> policies_;  // one per context
  std::vector<std::unique_ptr<Run>> runs_;
  std::vector<std::shared_ptr<GenerationState>>
      waiting_;                    // for a prefix that another run is evaluating
  std::vector<Run*> by_sequence_;  // runs of the context at hand, by sequence id
  std::vector<LaneWork> work_;
  std::optional<ThreadGovernor> governor_;
  Batch batch_;
  std::vector<Pick> picks_;
  Workers workers_;
  std::string piece_;
  Counters counters_;
  Tally tally_;
  RealTime step_began_{};            // the running decode
  std::int32_t failed_decodes_ = 0;  // in a row
  std::vector<std::shared_ptr<Mailbox>> to_ring_;

  std::mutex inbox_mutex_;
  std::condition_variable inbox_changed_;
  std::vector<std::shared_ptr<GenerationState>> inbox_;  // guarded by inbox_mutex_
  std::unordered_set<std::shared_ptr<GenerationState>>
      live_;               // guarded by inbox_mutex_; submitted, not ended
  bool stop_ = false;      // guarded by inbox_mutex_
  bool poked_ = false;     // guarded by inbox_mutex_; interrupt() was called
  bool ended_ = false;     // guarded by inbox_mutex_; the thread has left run(), or was given up
  bool given_up_ = false;  // guarded by inbox_mutex_; stop() ran out of time
  std::condition_variable thread_ended_;
  std::thread thread_;  // guarded by inbox_mutex_

  std::mutex decode_mutex_;
  Backend* decoding_ = nullptr;              // guarded by decode_mutex_; the context in decode()
  std::vector<GenerationState*> in_decode_;  // guarded by decode_mutex_; whose tokens are in it
  bool abort_all_ = false;                   // guarded by decode_mutex_; stop() wants out

  mutable std::mutex published_mutex_;
  Counters published_;                        // guarded by published_mutex_
  StepTimes step_times_;                      // guarded by published_mutex_
  std::atomic<std::int64_t> progress_ns_{0};  // time of the last finished step
  std::atomic<bool> busy_{false};             // a step is running or due

  // Last, so that what is under way, which uses the rest, ends first.
  Errands errands_;
};

}  // namespace pronk::inline v0
