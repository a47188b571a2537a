#include <utility>

#include "gate.h"
#include "permit_state.h"
#include "pronk/error.h"
#include "pronk/scheduler.h"
#include "scheduler_state.h"

namespace pronk::inline v0 {

Ticket::Ticket(std::shared_ptr<TicketState> state,
               std::shared_ptr<SchedulerState> scheduler) noexcept
    : state_(std::move(state)), scheduler_(std::move(scheduler)) {}
Ticket::~Ticket() { cancel(); }
Ticket::Ticket(Ticket&&) noexcept = default;
Ticket& Ticket::operator=(Ticket&& other) noexcept {
  if (this != &other) {
    cancel();
    state_ = std::move(other.state_);
    scheduler_ = std::move(other.scheduler_);
  }
  return *this;
}

TicketStatus Ticket::status() const noexcept { return state_->gate->status(*state_); }

TicketStatus Ticket::wait_for(std::chrono::nanoseconds timeout, std::chrono::nanoseconds slice) {
  Gate& gate = *state_->gate;
  return gate.wait_until(*state_, deadline_after(gate.clock().now(), timeout),
                         real_time_after(slice));
}

std::chrono::nanoseconds Ticket::age() const { return state_->gate->age(*state_); }

InferencePermit Ticket::take() {
  Gate& gate = *state_->gate;
  if (gate.take(*state_)) {
    try {
      return InferencePermit(std::make_shared<PermitState>(scheduler_, state_->options.owner));
    } catch (...) {
      gate.release(state_->options.owner);
      throw;
    }
  }
  if (gate.status(*state_) == TicketStatus::kClosed) {
    throw SchedulerClosedError(
        "acquire: got a scheduler that was closed, expected a permit, create a new scheduler");
  }
  throw InvalidArgumentError(
      "ticket: got no permit to take, expected a granted ticket that was not taken yet, "
      "wait for the ticket first");
}

void Ticket::cancel(bool timed_out) noexcept {
  if (state_) state_->gate->cancel(*state_, timed_out);
}

void Ticket::listen(Listener listener) { state_->gate->listen(*state_, std::move(listener)); }

}  // namespace pronk::inline v0
