// The gate: a fair counting semaphore, with a pool of lanes behind it once an engine is given.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pronk/api.h"
#include "pronk/chat.h"
#include "pronk/engine.h"
#include "pronk/generation.h"
#include "pronk/mailbox.h"
#include "pronk/memory.h"
#include "pronk/permit.h"
#include "pronk/statistics.h"

namespace pronk::inline v0 {

class Clock;
class SchedulerState;
class TicketState;

/// How the contexts behind the permits are arranged.
struct PoolOptions {
  /// "batched": one llama_context serves all permits from one batch. "isolated": a llama_context
  /// per permit; the answer then does not depend on the neighbours to the last bit of the logits,
  /// for which only whole chunks of n_batch tokens of earlier prompts are reused.
  std::string layout = "batched";
  std::string kv = "auto";  ///< batched: "shared" cells, "split" streams, or "auto"
  std::optional<std::int32_t>
      n_ctx;  ///< tokens per permit, >= 2; none takes the model's, at most 4096; or kAuto
  std::optional<std::int32_t>
      n_batch;  ///< most tokens in one call of the model, >= 1; none: 512, isolated on a CPU 128
  std::optional<std::int32_t>
      n_threads;  ///< compute threads of the whole pool; none is the CPUs of this process
  std::string flash_attention = "auto";  ///< "on", "off", "auto"
  /// KV cache types: f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0; "auto" is f16, since smaller
  /// ones change the answers.
  std::string type_k = "auto", type_v = "auto";
  /// batched: idle sequences kept for reuse besides the lanes. None is 16; with kv "split", where
  /// each has n_ctx cells of its own, no more than fill 32768 cells or than two per permit,
  /// whichever is more; fewer where memory is short.
  std::optional<std::int32_t> n_cached;
  /// Most tokens that idle sequences keep for reuse, all together: beyond that the least recently
  /// used go. None is what there is room for.
  std::optional<std::int32_t> cache_tokens;
  double max_step_ms =
      100;  ///< batched: prompt chunks are cut so that running streams keep this pace
};

/// How permits are handed out.
struct SchedulerOptions {
  std::int32_t max_concurrent = 1;          ///< [1, 4096], or with an engine kAuto
  std::optional<std::int32_t> max_waiting;  ///< more waiters get QueueFullError; none is unbounded
  double ageing_seconds =
      10;  ///< a waiter gains one priority level per so many seconds of waiting; 0 never
  std::shared_ptr<Clock>
      clock;  ///< none is the system's steady clock; see pronk/testing.h for another
};

/// Who waits for a permit.
struct AcquireOptions {
  std::int32_t priority = 0;  ///< higher goes first; [-1000, 1000]
  /// Who acquires, for deadlock detection: a number that is never used again for another thread or
  /// task. 0: nobody.
  std::uint64_t owner = 0;
};

/// kGranted: the permit is there to be taken. kClosed: the scheduler was closed.
enum class TicketStatus : int { kWaiting, kGranted, kCancelled, kClosed };

/// A place in the waiting queue. Move-only; dropping it gives the place, or the permit it was
/// granted, to the next in line. All functions may be called from any thread.
class PRONK_API Ticket {
 public:
  /// For pronk itself.
  Ticket(std::shared_ptr<TicketState> state, std::shared_ptr<SchedulerState> scheduler) noexcept;
  ~Ticket();
  Ticket(Ticket&&) noexcept;
  Ticket& operator=(Ticket&&) noexcept;

  /// Never waits.
  TicketStatus status() const noexcept;
  /// Waits until the ticket is no longer waiting, at most `timeout` on the scheduler's clock and
  /// `slice` of real time.
  TicketStatus wait_for(std::chrono::nanoseconds timeout,
                        std::chrono::nanoseconds slice = std::chrono::nanoseconds::max());
  /// Time since it was queued, on the scheduler's clock.
  std::chrono::nanoseconds age() const;
  /// The permit of a granted ticket, once. Throws SchedulerClosedError or Error where there is none
  /// to take.
  InferencePermit take();
  /// Leaves the queue; a permit already granted goes to the next. `timed_out` says how it is
  /// counted.
  void cancel(bool timed_out = false) noexcept;
  /// Tells `listener` when the ticket stops waiting; at once if it already has.
  void listen(Listener listener);

 private:
  std::shared_ptr<TicketState> state_;
  std::shared_ptr<SchedulerState> scheduler_;
};

/// All functions may be called from any thread, at the same time too; none needs the GIL. The
/// destructor closes the scheduler once the last permit and generation of it are gone.
class PRONK_API InferenceScheduler {
 public:
  /// Throws InvalidArgumentError.
  explicit InferenceScheduler(const SchedulerOptions& options);
  /// The same, and set_pool(). max_concurrent may be kAuto: the most permits that memory allows.
  /// Throws InsufficientMemoryError where it allows none.
  InferenceScheduler(SchedulerOptions options, std::shared_ptr<InferenceEngine> engine,
                     const PoolOptions& pool = {});
  /// For pronk itself.
  explicit InferenceScheduler(std::shared_ptr<SchedulerState> state) noexcept;
  ~InferenceScheduler();
  InferenceScheduler(const InferenceScheduler&) = delete;
  InferenceScheduler& operator=(const InferenceScheduler&) = delete;

  /// Creates the lanes, which takes their memory. Once per scheduler. Throws InvalidArgumentError
  /// (a second pool too), InsufficientMemoryError, BackendError.
  /// `look_up` is called about every 50 ms of the wait; it may throw to end that. The context at
  /// hand is then finished in the background, and what was created is freed.
  void init_pool(std::shared_ptr<InferenceEngine> engine, const PoolOptions& options = {},
                 const std::function<void()>& look_up = {});
  /// The same at the first use that needs the pool, which then throws what init_pool() throws.
  void set_pool(std::shared_ptr<InferenceEngine> engine, const PoolOptions& options = {});
  /// Creates the lanes that set_pool() left for later, unless they exist. Throws as init_pool()
  /// does, and PoolNotInitialisedError without an engine.
  void create_pool(const std::function<void()>& look_up = {});
  /// The model; null without a pool.
  std::shared_ptr<InferenceEngine> engine() const;

  /// Waits in order, at most `timeout` on the scheduler's clock. Throws AcquireTimeout,
  /// SchedulerClosedError, QueueFullError, DeadlockError, InvalidArgumentError.
  InferencePermit acquire(std::optional<std::chrono::nanoseconds> timeout = std::nullopt,
                          const AcquireOptions& options = {});
  /// A permit if one is free and nobody waits for it. Never waits. Throws SchedulerClosedError.
  std::optional<InferencePermit> try_acquire(const AcquireOptions& options = {});
  /// Takes a place in the queue; granted at once if a permit is free and nobody waits. Throws as
  /// acquire() does.
  /// `listener` is told when the ticket stops waiting, at once if it does not wait at all.
  Ticket enqueue(const AcquireOptions& options = {}, Listener listener = {});

  /// Throws DeadlockError when `owner` itself holds every permit: it must not wait for what needs
  /// one, such as a queued generation.
  void check_deadlock(std::uint64_t owner) const;

  /// A generation that waits for its own permit, runs and gives it back. Returns at once. Throws
  /// PoolNotInitialisedError, InvalidArgumentError, ContextOverflowError, QueueFullError,
  /// SchedulerClosedError.
  Generation generate(std::string_view prompt, const GenerationParams& params = {},
                      std::int32_t priority = 0);
  /// The same for token ids, taken as they are: no BOS is added.
  Generation generate(std::vector<Token> prompt, const GenerationParams& params = {},
                      std::int32_t priority = 0);
  /// The same for a chat; see InferencePermit::chat().
  Generation chat(std::string_view messages, const ChatParams& chat = {},
                  const GenerationParams& params = {}, std::int32_t priority = 0);

  /// Changes the number of permits. Shrinking takes effect as permits come back. Throws
  /// InvalidArgumentError outside [1, 4096] and above the lanes of a pool.
  void resize(std::int32_t max_concurrent);

  /// Permits that may be held at once.
  std::int32_t max_concurrent() const;
  /// Permits held now.
  std::int32_t active_count() const;
  /// Waiters now: threads, tickets, queued generations.
  std::int32_t waiting_count() const;
  /// A snapshot that never waits for a decode step. What the pool counts is as of its last step.
  Statistics statistics() const;

  /// What the contexts of the pool have taken of each device, by llama.cpp's own accounting; empty
  /// without a pool. To compare with InferenceEngine::estimate_memory().
  std::vector<DeviceMemory> memory() const;

  /// Starts to record what happens, for a timeline: 64 bytes an event, of which the last
  /// `max_events`, in [1, 2**26], are kept. Throws InvalidArgumentError.
  void start_trace(std::size_t max_events = std::size_t{1} << 20);
  /// Ends the recording and writes it in the trace event format (JSON), which Perfetto opens. Never
  /// waits for a decode step; see the state of the stream for whether all was written. Throws
  /// InvalidArgumentError when nothing is recorded.
  void stop_trace(std::ostream& out);
  /// Whether a recording is under way.
  bool tracing() const;

  /// Ends the scheduler: waiters get SchedulerClosedError, running generations are cancelled. With
  /// `drain`, those that wait are served and those that run finish first; new ones are refused at
  /// once. `timeout` bounds all of it; none bounds what follows the draining to 10 s. Returns false
  /// when time ran out: a decode step that is stuck is then left to itself and its generations fail
  /// with BackendError. Idempotent.
  /// `look_up` is called about every 50 ms of the wait; it may throw to end that, and close() with
  /// it: the scheduler is closed all the same, what still runs is cancelled and not waited for.
  bool close(bool drain = false, std::optional<std::chrono::nanoseconds> timeout = std::nullopt,
             const std::function<void()>& look_up = {});
  /// Whether close() was called.
  bool closed() const;

 private:
  std::shared_ptr<SchedulerState> state_;
};

}  // namespace pronk::inline v0
