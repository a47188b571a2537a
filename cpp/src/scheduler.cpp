#include "pronk/scheduler.h"

#include <exception>
#include <string>
#include <utility>

#include "permit_state.h"
#include "pronk/error.h"
#include "scheduler_state.h"

namespace pronk::inline v0 {
namespace {

constexpr std::int32_t kMaxConcurrent = 4096;
constexpr std::int32_t kMaxPriority = 1000;
constexpr double kMaxAgeing = 1e6;

void check_concurrent(std::int32_t value) {
  if (value < 1 || value > kMaxConcurrent) {
    throw InvalidArgumentError("max_concurrent: got " + std::to_string(value) +
                               ", expected an integer in [1, " + std::to_string(kMaxConcurrent) +
                               "], choose how many inferences may run at once");
  }
}

void check_priority(std::int32_t value) {
  if (value < -kMaxPriority || value > kMaxPriority) {
    throw InvalidArgumentError("priority: got " + std::to_string(value) +
                               ", expected an integer in [-" + std::to_string(kMaxPriority) + ", " +
                               std::to_string(kMaxPriority) + "], choose a value in that range");
  }
}

const SchedulerOptions& checked(const SchedulerOptions& options) {
  check_concurrent(options.max_concurrent);
  if (options.max_waiting && *options.max_waiting < 0) {
    throw InvalidArgumentError("max_waiting: got " + std::to_string(*options.max_waiting) +
                               ", expected an integer >= 0 or none, choose how many may wait");
  }
  if (!(options.ageing_seconds >= 0 && options.ageing_seconds <= kMaxAgeing)) {
    throw InvalidArgumentError("ageing_seconds: got " + std::to_string(options.ageing_seconds) +
                               ", expected a number in [0, 1000000], choose a value in that range");
  }
  return options;
}

[[noreturn]] void throw_timeout(Duration timeout, const Gate& gate) {
  throw AcquireTimeout("acquire: got no permit within " + std::to_string(to_seconds(timeout)) +
                       " s, expected one of " + std::to_string(gate.max()) +
                       " to become free, raise the timeout or hold permits for shorter");
}

}  // namespace

InferenceScheduler::InferenceScheduler(const SchedulerOptions& options)
    : state_(std::make_shared<SchedulerState>(checked(options))) {}
InferenceScheduler::InferenceScheduler(std::shared_ptr<SchedulerState> state) noexcept
    : state_(std::move(state)) {}
InferenceScheduler::~InferenceScheduler() = default;

void InferenceScheduler::init_pool(std::shared_ptr<InferenceEngine> engine,
                                   const PoolOptions& options,
                                   const std::function<void()>& look_up) {
  state_->set_pool(std::move(engine), options);
  try {
    state_->pool(look_up);
  } catch (...) {
    state_->unset_pool();
    throw;
  }
}

void InferenceScheduler::set_pool(std::shared_ptr<InferenceEngine> engine,
                                  const PoolOptions& options) {
  state_->set_pool(std::move(engine), options);
}

void InferenceScheduler::create_pool(const std::function<void()>& look_up) {
  state_->pool(look_up);
}

std::shared_ptr<InferenceEngine> InferenceScheduler::engine() const { return state_->engine(); }

InferencePermit InferenceScheduler::acquire(std::optional<std::chrono::nanoseconds> timeout,
                                            const AcquireOptions& options) {
  Ticket ticket = enqueue(options);
  if (ticket.wait_for(timeout.value_or(Duration::max())) == TicketStatus::kWaiting) {
    ticket.cancel(true);
    throw_timeout(timeout.value_or(Duration::max()), *state_->gate);
  }
  return ticket.take();
}

std::optional<InferencePermit> InferenceScheduler::try_acquire(const AcquireOptions& options) {
  if (!state_->gate->try_acquire(options.owner)) return std::nullopt;
  try {
    return InferencePermit(std::make_shared<PermitState>(state_, options.owner));
  } catch (...) {
    state_->gate->release(options.owner);
    throw;
  }
}

Ticket InferenceScheduler::enqueue(const AcquireOptions& options, Listener listener) {
  check_priority(options.priority);
  auto ticket = std::make_shared<TicketState>(state_->gate, options);
  state_->gate->enqueue(ticket, std::move(listener));
  return Ticket(std::move(ticket), state_);
}

void InferenceScheduler::check_deadlock(std::uint64_t owner) const {
  state_->gate->refuse_deadlock(owner);
}

Generation InferenceScheduler::generate(std::string_view prompt, const GenerationParams& params,
                                        std::int32_t priority) {
  return generate(state_->tokenize(prompt), params, priority);
}

Generation InferenceScheduler::generate(std::vector<Token> prompt, const GenerationParams& params,
                                        std::int32_t priority) {
  check_priority(priority);
  return state_->queue(state_->make_generation(std::move(prompt), params), priority);
}

Generation InferenceScheduler::chat(std::string_view messages, const ChatParams& chat,
                                    const GenerationParams& params, std::int32_t priority) {
  check_priority(priority);
  return state_->queue(state_->make_chat(messages, chat, params), priority);
}

void InferenceScheduler::resize(std::int32_t max_concurrent) {
  check_concurrent(max_concurrent);
  state_->resize(max_concurrent);
}

std::int32_t InferenceScheduler::max_concurrent() const { return state_->gate->max(); }
std::int32_t InferenceScheduler::active_count() const { return state_->gate->active(); }
std::int32_t InferenceScheduler::waiting_count() const { return state_->gate->waiting(); }

Statistics InferenceScheduler::statistics() const {
  Statistics statistics;
  state_->fill(statistics);
  return statistics;
}

void InferenceScheduler::start_trace(std::size_t max_events) {
  state_->process.check("scheduler");
  state_->trace->start(max_events);
}

void InferenceScheduler::stop_trace(std::ostream& out) {
  state_->process.check("scheduler");
  write_trace_json(state_->trace->stop(), out);
}

bool InferenceScheduler::tracing() const { return state_->trace->on(); }

bool InferenceScheduler::close(bool drain, std::optional<std::chrono::nanoseconds> timeout,
                               const std::function<void()>& look_up) {
  return state_->close(drain, timeout, look_up);
}

bool InferenceScheduler::closed() const { return state_->gate->closed(); }

}  // namespace pronk::inline v0
