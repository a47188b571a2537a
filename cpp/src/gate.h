// The counting semaphore: one mutex, one queue of tickets for blocked threads, tasks and queued
// generations alike.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "clock.h"
#include "process.h"
#include "pronk/mailbox.h"
#include "pronk/scheduler.h"
#include "trace.h"
#include "wait_queue.h"

namespace pronk::inline v0 {

class Gate;

/// What a queued generation does when its ticket is decided. Of the two one runs, once, outside the
/// mutex.
struct QueuedStart {
  std::function<void()> on_grant;  ///< the permit belongs to this function
  std::function<void()> on_close;  ///< the gate closed under a waiting ticket
};

/// One entry of the queue. Thousands may wait, so what only some need is made when they need it.
/// Everything but `gate`, `options` and `taken` is guarded by the gate's mutex.
class TicketState {
 public:
  TicketState(std::shared_ptr<Gate> gate_in, const AcquireOptions& options_in)
      : gate(std::move(gate_in)), options(options_in) {}

  const std::shared_ptr<Gate> gate;
  const AcquireOptions options;

  TicketStatus status = TicketStatus::kWaiting;
  /// The permit of a granted ticket has an owner of its own now. Set under the mutex, never unset.
  std::atomic<bool> taken{false};
  WaitQueue::Key key{};  ///< see Gate::key_for
  TimePoint enqueued{};
  Listener listener;
  std::unique_ptr<QueuedStart> start;                ///< of queued generations alone
  std::unique_ptr<std::condition_variable> changed;  ///< once a thread is blocked in it
};

/// Invariant, under the mutex: active <= max unless shrunk while over-subscribed; nobody waits
/// while a permit is free.
class Gate {
 public:
  Gate(const SchedulerOptions& options, std::shared_ptr<Clock> clock, std::shared_ptr<Trace> trace);

  /// Takes a permit if one is free and nobody waits.
  bool try_acquire(std::uint64_t owner);
  /// Queues a fresh ticket, or grants it at once. Throws SchedulerClosedError, QueueFullError,
  /// DeadlockError.
  /// `listener` is told when the ticket is decided, at once if it is.
  void enqueue(const std::shared_ptr<TicketState>& ticket, Listener listener = {});
  /// Waits for a ticket to be decided, at most until `deadline`, and no longer than to the real
  /// time `latest`.
  TicketStatus wait_until(TicketState& ticket, TimePoint deadline,
                          RealTime latest = RealTime::max());
  TicketStatus status(const TicketState& ticket) const;
  Duration age(const TicketState& ticket) const;
  /// Throws DeadlockError when `owner` itself holds every permit.
  void refuse_deadlock(std::uint64_t owner) const;
  /// Takes the permit of a granted ticket: true once per ticket.
  bool take(TicketState& ticket);
  /// Leaves the queue, or hands an untaken permit on. Returns true when the ticket was still
  /// waiting.
  bool cancel(TicketState& ticket, bool timed_out);
  void listen(TicketState& ticket, Listener listener);

  /// Gives one permit of `owner` back.
  void release(std::uint64_t owner);
  /// One permit of `owner` counts as nobody's from now on.
  void disown(std::uint64_t owner);

  void resize(std::int32_t max);
  /// No new tickets from now on; those that wait are served.
  void refuse_new();
  /// As refuse_new(), and every waiting ticket ends as kClosed.
  void close();
  /// Waits until nobody holds or waits for a permit. False at the deadline.
  bool wait_idle(TimePoint deadline, RealTime latest = RealTime::max());

  std::int32_t max() const;
  std::int32_t active() const;
  std::int32_t waiting() const;
  bool closed() const;
  void fill(Statistics& statistics) const;
  Clock& clock() const noexcept { return *clock_; }

  const ProcessBound process;

 private:
  using Functions = std::vector<std::function<void()>>;

  WaitQueue::Key key_for(std::int32_t priority, TimePoint now);
  void check_deadlock(std::uint64_t owner) const;
  void hold(std::uint64_t owner);
  void unhold(std::uint64_t owner);
  void forget_owner(std::uint64_t owner);
  void grant_waiting(Functions& run_after);
  void decide(TicketState& ticket, TicketStatus status, Functions& run_after);
  static void run(Functions& functions);
  void trace_wait(const TicketState& ticket, TraceResult result) const;
  void trace_counts() const;

  const std::shared_ptr<Clock> clock_;
  const std::shared_ptr<Trace> trace_;
  const std::optional<std::int32_t> max_waiting_;
  const std::int64_t ageing_ns_;

  mutable std::mutex mutex_;
  std::condition_variable idle_;
  WaitQueue queue_;  // guarded by mutex_
  std::unordered_map<std::uint64_t, std::int32_t>
      held_;                          // guarded by mutex_; permits per known owner
  decltype(held_)::node_type spare_;  // guarded by mutex_; kept, so that permits cost no allocation
  std::int32_t max_;                  // guarded by mutex_
  std::int32_t active_ = 0;           // guarded by mutex_
  std::int32_t high_water_ = 0;       // guarded by mutex_
  std::uint64_t next_number_ = 0;     // guarded by mutex_
  std::uint64_t acquired_ = 0;        // guarded by mutex_
  std::uint64_t released_ = 0;        // guarded by mutex_
  std::uint64_t timed_out_ = 0;       // guarded by mutex_
  std::uint64_t abandoned_ = 0;       // guarded by mutex_
  Duration waited_{0};                // guarded by mutex_
  bool refusing_ = false;             // guarded by mutex_
  bool closed_ = false;               // guarded by mutex_
};

}  // namespace pronk::inline v0
