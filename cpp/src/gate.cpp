#include "gate.h"

#include <algorithm>
#include <string>

#include "pronk/error.h"

namespace pronk::inline v0 {
namespace {

std::int64_t to_ns(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

[[noreturn]] void throw_closed() {
  throw SchedulerClosedError(
      "scheduler: got a call after close(), expected an open scheduler, create a new one");
}

}  // namespace

Gate::Gate(const SchedulerOptions& options, std::shared_ptr<Clock> clock,
           std::shared_ptr<Trace> trace)
    : clock_(std::move(clock)),
      trace_(std::move(trace)),
      max_waiting_(options.max_waiting),
      ageing_ns_(to_ns(options.ageing_seconds)),
      max_(options.max_concurrent) {}

// Waiting raises priority: after t seconds a ticket counts as priority + t / ageing. Which of two
// tickets goes first does not depend on when one looks, since both rise at the same rate; so the
// order is fixed on arrival, by the time at which a ticket of priority 0 would have had to arrive
// to be its equal.
WaitQueue::Key Gate::key_for(std::int32_t priority, TimePoint now) {
  const std::int64_t rank = ageing_ns_ == 0
                                ? -std::int64_t{priority}
                                : now.time_since_epoch().count() - ageing_ns_ * priority;
  return {rank, next_number_++};
}

void Gate::check_deadlock(std::uint64_t owner) const {
  if (owner == 0) return;
  const auto it = held_.find(owner);
  if (it == held_.end() || it->second < active_ || active_ < max_) return;
  throw DeadlockError(
      "acquire: got a call from the holder of all " + std::to_string(active_) +
      " permits, expected one of them to be free or held by another thread or task, "
      "release a permit first, or detach() one that another will release");
}

void Gate::hold(std::uint64_t owner) {
  ++active_;
  ++acquired_;
  high_water_ = std::max(high_water_, active_);
  if (owner == 0) return;
  if (const auto it = held_.find(owner); it != held_.end()) {
    ++it->second;
  } else if (spare_.empty()) {
    held_.emplace(owner, 1);
  } else {
    spare_.key() = owner;
    spare_.mapped() = 1;
    held_.insert(std::move(spare_));
  }
}

void Gate::unhold(std::uint64_t owner) {
  --active_;
  ++released_;
  forget_owner(owner);
}

void Gate::forget_owner(std::uint64_t owner) {
  if (owner == 0) return;
  const auto it = held_.find(owner);
  if (--it->second == 0) spare_ = held_.extract(it);
}

void Gate::disown(std::uint64_t owner) {
  std::lock_guard lock(mutex_);
  forget_owner(owner);
}

void Gate::refuse_deadlock(std::uint64_t owner) const {
  std::lock_guard lock(mutex_);
  check_deadlock(owner);
}

bool Gate::try_acquire(std::uint64_t owner) {
  process.check("scheduler");
  std::lock_guard lock(mutex_);
  if (refusing_) throw_closed();
  if (active_ >= max_ || !queue_.empty()) return false;
  hold(owner);
  if (trace_->on()) trace_counts();
  return true;
}

void Gate::enqueue(const std::shared_ptr<TicketState>& ticket, Listener listener) {
  process.check("scheduler");
  Functions run_after;
  {
    std::lock_guard lock(mutex_);
    if (refusing_) throw_closed();
    check_deadlock(ticket->options.owner);
    const TimePoint now = clock_->now();
    ticket->enqueued = now;
    ticket->key = key_for(ticket->options.priority, now);
    const bool must_wait = active_ >= max_ || !queue_.empty();
    if (must_wait && max_waiting_ && queue_.size() >= static_cast<std::size_t>(*max_waiting_)) {
      throw QueueFullError("acquire: got " + std::to_string(queue_.size()) +
                           " waiters already, expected fewer than " + "max_waiting=" +
                           std::to_string(*max_waiting_) + ", retry later or raise max_waiting");
    }
    ticket->listener = std::move(listener);
    queue_.push(ticket->key, ticket);
    grant_waiting(run_after);
    if (trace_->on()) trace_counts();
  }
  run(run_after);
}

// Wakes exactly the tickets that were decided, while the mutex is held: a waiter cannot miss it and
// nobody else stirs.
void Gate::decide(TicketState& ticket, TicketStatus status, Functions& run_after) {
  ticket.status = status;
  if (ticket.start) {
    // Whatever happens now, it goes: it holds the generation, which holds the ticket.
    const std::unique_ptr<QueuedStart> start = std::move(ticket.start);
    if (status != TicketStatus::kCancelled) {
      const bool granted = status == TicketStatus::kGranted;
      ticket.taken = granted;
      run_after.push_back(std::move(granted ? start->on_grant : start->on_close));
    }
  }
  if (ticket.changed) ticket.changed->notify_all();
  if (ticket.listener.mailbox) {
    ticket.listener.mailbox->post(ticket.listener.key);
    ticket.listener.mailbox->ring();
    ticket.listener = {};
  }
}

void Gate::grant_waiting(Functions& run_after) {
  if (queue_.empty()) {
    if (active_ == 0) idle_.notify_all();
    return;
  }
  if (active_ >= max_) return;
  const TimePoint now = clock_->now();
  while (active_ < max_ && !queue_.empty()) {
    const std::shared_ptr<TicketState> ticket = queue_.pop();
    hold(ticket->options.owner);
    waited_ += now - ticket->enqueued;
    if (trace_->on()) trace_wait(*ticket, TraceResult::kNone);
    decide(*ticket, TicketStatus::kGranted, run_after);
  }
}

void Gate::run(Functions& functions) {
  for (auto& function : functions) function();
}

TicketStatus Gate::wait_until(TicketState& ticket, TimePoint deadline, RealTime latest) {
  process.check("scheduler");
  std::unique_lock lock(mutex_);
  while (ticket.status == TicketStatus::kWaiting && clock_->now() < deadline) {
    if (!ticket.changed) ticket.changed = std::make_unique<std::condition_variable>();
    clock_->wait_until(*ticket.changed, lock, deadline, latest);
    if (latest != RealTime::max() && std::chrono::steady_clock::now() >= latest) break;
  }
  return ticket.status;
}

TicketStatus Gate::status(const TicketState& ticket) const {
  if (process.forked()) return TicketStatus::kClosed;
  std::lock_guard lock(mutex_);
  return ticket.status;
}

Duration Gate::age(const TicketState& ticket) const {
  std::lock_guard lock(mutex_);
  return clock_->now() - ticket.enqueued;
}

bool Gate::take(TicketState& ticket) {
  process.check("scheduler");
  std::lock_guard lock(mutex_);
  if (ticket.status != TicketStatus::kGranted || ticket.taken) return false;
  ticket.taken = true;
  return true;
}

bool Gate::cancel(TicketState& ticket, bool timed_out) {
  if (process.forked() || ticket.taken) return false;
  Functions run_after;
  bool was_waiting = false;
  {
    std::lock_guard lock(mutex_);
    if (ticket.status == TicketStatus::kWaiting) {
      was_waiting = true;
      queue_.erase(ticket.key);
      ++(timed_out ? timed_out_ : abandoned_);
      if (trace_->on()) {
        trace_wait(ticket, timed_out ? TraceResult::kTimedOut : TraceResult::kCancelled);
      }
      decide(ticket, TicketStatus::kCancelled, run_after);
    } else if (ticket.status == TicketStatus::kGranted && !ticket.taken) {
      ticket.status = TicketStatus::kCancelled;
      ++(timed_out ? timed_out_ : abandoned_);
      unhold(ticket.options.owner);
    }
    grant_waiting(run_after);
    if (trace_->on()) trace_counts();
  }
  run(run_after);
  return was_waiting;
}

void Gate::listen(TicketState& ticket, Listener listener) {
  process.check("scheduler");
  std::lock_guard lock(mutex_);
  if (ticket.status == TicketStatus::kWaiting) {
    ticket.listener = std::move(listener);
  } else if (listener.mailbox) {
    listener.mailbox->post(listener.key);
    listener.mailbox->ring();
  }
}

void Gate::release(std::uint64_t owner) {
  if (process.forked()) return;
  Functions run_after;
  {
    std::lock_guard lock(mutex_);
    unhold(owner);
    grant_waiting(run_after);
    if (trace_->on()) trace_counts();
  }
  run(run_after);
}

void Gate::resize(std::int32_t max) {
  process.check("scheduler");
  Functions run_after;
  {
    std::lock_guard lock(mutex_);
    if (refusing_) throw_closed();
    max_ = max;
    grant_waiting(run_after);
    if (trace_->on()) trace_counts();
  }
  run(run_after);
}

void Gate::refuse_new() {
  std::lock_guard lock(mutex_);
  refusing_ = true;
}

void Gate::close() {
  Functions run_after;
  {
    std::lock_guard lock(mutex_);
    refusing_ = true;
    closed_ = true;
    while (!queue_.empty()) {
      const std::shared_ptr<TicketState> ticket = queue_.pop();
      if (trace_->on()) trace_wait(*ticket, TraceResult::kClosed);
      decide(*ticket, TicketStatus::kClosed, run_after);
    }
    if (trace_->on()) trace_counts();
    if (active_ == 0) idle_.notify_all();
  }
  run(run_after);
}

bool Gate::wait_idle(TimePoint deadline, RealTime latest) {
  std::unique_lock lock(mutex_);
  while (active_ > 0 || !queue_.empty()) {
    if (clock_->now() >= deadline) return false;
    if (std::chrono::steady_clock::now() >= latest) return false;
    clock_->wait_until(idle_, lock, deadline, latest);
  }
  return true;
}

std::int32_t Gate::max() const {
  process.check("scheduler");
  std::lock_guard lock(mutex_);
  return max_;
}

std::int32_t Gate::active() const {
  process.check("scheduler");
  std::lock_guard lock(mutex_);
  return active_;
}

std::int32_t Gate::waiting() const {
  process.check("scheduler");
  std::lock_guard lock(mutex_);
  return static_cast<std::int32_t>(queue_.size());
}

bool Gate::closed() const {
  process.check("scheduler");
  std::lock_guard lock(mutex_);
  return refusing_;
}

// Called with the mutex held.
void Gate::trace_wait(const TicketState& ticket, TraceResult result) const {
  trace_->add({TraceKind::kWait, result, 0, ticket.enqueued, clock_->now(), ticket.key.second});
}

// Called with the mutex held.
void Gate::trace_counts() const {
  const TimePoint now = clock_->now();
  trace_->add({TraceKind::kPermits,
               TraceResult::kNone,
               0,
               now,
               now,
               0,
               {active_, static_cast<std::int64_t>(queue_.size())}});
}

void Gate::fill(Statistics& out) const {
  std::lock_guard lock(mutex_);
  out.max_concurrent = max_;
  out.active = active_;
  out.waiting = static_cast<std::int32_t>(queue_.size());
  out.high_water = high_water_;
  out.acquired = acquired_;
  out.released = released_;
  out.timed_out = timed_out_;
  out.abandoned = abandoned_;
  out.wait_seconds = to_seconds(waited_);
}

}  // namespace pronk::inline v0
