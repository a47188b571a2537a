#include "scheduler_state.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "chat_render.h"
#include "engine_impl.h"
#include "pool.h"
#include "pool_plan.h"
#include "pronk/error.h"

namespace pronk::inline v0 {
namespace {

// How long a scheduler that is dropped without close() waits for the step that runs.
constexpr Duration kDropTimeout = std::chrono::seconds(2);
// How long close() without a timeout does, when nothing is left to drain.
constexpr Duration kStopTimeout = std::chrono::seconds(10);
constexpr Duration kStopGrace = std::chrono::seconds(1);

[[noreturn]] void throw_no_pool() {
  throw PoolNotInitialisedError(
      "generate: got a scheduler without a pool, expected one with an engine, "
      "call init_pool(engine) first");
}

[[noreturn]] void throw_closed() {
  throw SchedulerClosedError(
      "scheduler: got a call after close(), expected an open scheduler, create a new one");
}

std::shared_ptr<Clock> clock_of(const SchedulerOptions& options) {
  return options.clock ? options.clock : Clock::steady();
}

}  // namespace

void check_engine(const std::shared_ptr<InferenceEngine>& engine) {
  if (engine) return;
  throw InvalidArgumentError("engine: got none, expected a loaded InferenceEngine, load one first");
}

SchedulerState::SchedulerState(const SchedulerOptions& options, std::string reason)
    : clock(clock_of(options)),
      trace(std::make_shared<Trace>(clock)),
      gate(std::make_shared<Gate>(options, clock, trace)),
      max_concurrent_(options.max_concurrent),
      max_concurrent_reason_(reason.empty() ? "asked for" : std::move(reason)) {}

SchedulerState::~SchedulerState() {
  if (process.forked()) {
    // The thread does not exist here and its locks may be held for ever: not even a destructor may
    // run.
    new std::shared_ptr<DecodeLoop>(std::move(loop_));
    new std::shared_ptr<PoolMaker>(std::move(maker_));
    new std::shared_ptr<InferenceEngine>(std::move(engine_));
    return;
  }
  close(false, kDropTimeout);
  // Stuck in a native call; to wait for it would be to hang.
  if (maker_ && !maker_->wait_until(RealTime{})) new std::shared_ptr<PoolMaker>(std::move(maker_));
}

void SchedulerState::set_pool(std::shared_ptr<InferenceEngine> engine, const PoolOptions& options) {
  process.check("scheduler");
  check_engine(engine);
  validate(options);
  std::lock_guard lock(mutex_);
  if (closed_) throw_closed();
  if (engine_) {
    throw InvalidArgumentError(
        "init_pool: got a scheduler that has a pool, expected one without, "
        "create another scheduler for another engine or other options");
  }
  engine_ = std::move(engine);
  options_ = options;
}

void SchedulerState::adopt_pool(std::shared_ptr<InferenceEngine> engine,
                                std::shared_ptr<DecodeLoop> loop) {
  std::lock_guard lock(mutex_);
  engine_ = std::move(engine);
  loop_ = std::move(loop);
}

void SchedulerState::unset_pool() {
  std::lock_guard lock(mutex_);
  const bool wanted = maker_ && !maker_->cancelled();
  if (!loop_ && !wanted) engine_ = nullptr;
}

std::shared_ptr<DecodeLoop> SchedulerState::pool(const LookUp& look_up) {
  process.check("scheduler");
  for (;;) {
    std::shared_ptr<PoolMaker> maker;
    bool wanted;
    {
      const Lock lock(mutex_);
      if (const auto loop = open_pool(lock)) return loop;
    }
    {
      const std::lock_guard sizing(sizing_);
      const Lock lock(mutex_);
      if (const auto loop = open_pool(lock)) return loop;
      if (!maker_) start_maker(lock);
      maker = maker_;
      wanted = !maker->cancelled();  // else it is waited for only to make room
      if (wanted) ++n_wanting_;
    }
    try {
      while (!maker->wait_until(real_time_after(kLookUpEvery))) {
        if (look_up) look_up();
      }
    } catch (...) {
      const Lock lock(mutex_);
      if (wanted && maker_ == maker && --n_wanting_ == 0) maker->cancel();
      throw;
    }
    const Lock lock(mutex_);
    const bool first = maker_ == maker;
    if (first) {
      maker_ = nullptr;
      n_wanting_ = 0;
    }
    if (const auto loop = open_pool(lock)) return loop;
    if (!wanted) continue;
    auto loop = maker->pool();
    if (!first) continue;  // started and lost again
    loop->start();
    return loop_ = std::move(loop);
  }
}

// The loop, if there is one. Throws unless the scheduler is open and has an engine.
std::shared_ptr<DecodeLoop> SchedulerState::open_pool(const Lock&) const {
  if (closed_) throw_closed();
  if (!loop_ && !engine_) throw_no_pool();
  return loop_;
}

void SchedulerState::start_maker(const Lock&) {
  n_making_ = std::max(max_concurrent_, gate->max());
  maker_ =
      std::make_shared<PoolMaker>([engine = engine_, options = options_, n_lanes = n_making_,
                                   clock = clock, trace = trace](const PoolMaker::Flag& cancelled) {
        return make_pool(engine, options, n_lanes, clock, trace, cancelled);
      });
}

std::shared_ptr<InferenceEngine> SchedulerState::engine() const {
  process.check("scheduler");
  std::lock_guard lock(mutex_);
  return engine_;
}

void SchedulerState::resize(std::int32_t max_concurrent) {
  // Lanes are fixed when the pool is created.
  const std::lock_guard sizing(sizing_);
  {
    const Lock lock(mutex_);
    const std::int32_t n_lanes = loop_    ? loop_->n_lanes()
                                 : maker_ ? n_making_
                                          : std::numeric_limits<std::int32_t>::max();
    if (max_concurrent > n_lanes) {
      throw InvalidArgumentError("max_concurrent: got " + std::to_string(max_concurrent) +
                                 ", expected at most the " + std::to_string(n_lanes) +
                                 " lanes of the pool, create the scheduler with more");
    }
  }
  gate->resize(max_concurrent);
}

std::vector<Token> SchedulerState::tokenize(std::string_view prompt) {
  const auto engine = this->engine();
  if (!engine) throw_no_pool();
  return engine->tokenize(prompt, true, false);
}

std::shared_ptr<GenerationState> SchedulerState::make_generation(std::vector<Token> prompt,
                                                                 const GenerationParams& params,
                                                                 ChatReply reply,
                                                                 const GrammarSpec& grammar) {
  const auto loop = pool();
  const ModelInfo& model = engine()->info();
  validate(params, model.n_vocab);
  if (prompt.empty()) {
    throw InvalidArgumentError("prompt: got no tokens, expected at least one, pass some text");
  }
  for (const Token token : prompt) {
    if (token < 0 || token >= model.n_vocab) {
      throw InvalidArgumentError("prompt: got token id " + std::to_string(token) +
                                 ", expected ids in [0, " + std::to_string(model.n_vocab) +
                                 "), use the model's own tokenizer");
    }
  }
  const std::int32_t n_ctx = loop->n_ctx();
  if (prompt.size() >= static_cast<std::size_t>(n_ctx)) {
    throw ContextOverflowError("prompt: got " + std::to_string(prompt.size()) +
                               " tokens, expected at most " + std::to_string(n_ctx - 1) +
                               " (n_ctx=" + std::to_string(n_ctx) +
                               " less one for the answer), shorten the prompt or raise n_ctx");
  }
  GrammarSpec spec = grammar;
  if (spec.gbnf.empty()) {
    // The caller's own, of the answer alone: what the template begins it with is not in it.
    spec = {};
    spec.of_schemas = !params.json_schema.empty();
    spec.gbnf = params.json_schema.empty() ? params.grammar : grammar_of_schema(params.json_schema);
  }
  std::unique_ptr<Grammar> follows;
  if (!spec.gbnf.empty()) follows = make_grammar(*engine(), spec, reply.shown);
  auto generation =
      std::make_shared<GenerationState>(std::move(prompt), params, clock, std::move(reply));
  generation->grammar = std::move(follows);
  generation->number = n_generations_.fetch_add(1, std::memory_order_relaxed) + 1;
  generation->trace = trace;
  return generation;
}

std::shared_ptr<GenerationState> SchedulerState::make_chat(std::string_view messages,
                                                           const ChatParams& chat,
                                                           const GenerationParams& params) {
  const auto loop = pool();
  const auto engine = this->engine();
  validate(params, engine->info().n_vocab);
  if (!params.grammar.empty() && !chat.tools.empty()) {
    throw InvalidArgumentError(
        "grammar: got one beside tools, expected one of the two, leave the other out");
  }
  RenderedChat rendered = render_chat(*engine, messages, chat, params.json_schema);
  GenerationParams with_stops = params;
  for (std::string& stop : rendered.stops) {
    if (!stop.empty()) with_stops.stop.push_back(std::move(stop));
  }
  ChatReply reply;
  reply.shown = std::move(rendered.shown);
  reply.stream =
      std::make_unique<ReplyStream>(std::move(rendered.parser), std::move(rendered.tool_names));
  return make_generation(std::move(rendered.prompt), with_stops, std::move(reply),
                         rendered.grammar);
}

Generation SchedulerState::queue(std::shared_ptr<GenerationState> generation,
                                 std::int32_t priority) {
  const auto loop = pool();
  auto ticket = std::make_shared<TicketState>(gate, AcquireOptions{priority, 0});
  // While it waits it can leave the queue; once granted, the loop has to be told. The gate's mutex
  // decides which.
  generation->on_cancel = [weak_loop = std::weak_ptr(loop), weak_ticket = std::weak_ptr(ticket),
                           weak_generation = std::weak_ptr(generation)] {
    const auto waiting = weak_ticket.lock();
    const auto self = weak_generation.lock();
    if (waiting && self && waiting->gate->cancel(*waiting, false)) {
      if (const auto mailbox = self->finish(FinishReason::kCancelled)) mailbox->ring();
    } else if (const auto alive = weak_loop.lock()) {
      alive->interrupt();
    }
  };
  const auto fail = [](GenerationState& queued, std::exception_ptr error) {
    if (const auto mailbox = queued.fail(std::move(error))) mailbox->ring();
  };
  const auto closed = std::make_exception_ptr(
      SchedulerClosedError("generate: got a scheduler that was closed, expected it to stay open, "
                           "create a new one and try again"));
  // Both run on whatever thread releases a permit or closes the scheduler, so that nothing may
  // escape.
  ticket->start = std::make_unique<QueuedStart>();
  ticket->start->on_grant = [loop, gate = gate, generation, fail, closed] {
    try {
      generation->when_ended([gate = gate] { gate->release(0); });
    } catch (...) {
      fail(*generation, std::current_exception());
      return gate->release(0);
    }
    try {
      if (!loop->submit(generation)) fail(*generation, closed);
    } catch (...) {
      fail(*generation, std::current_exception());
    }
  };
  ticket->start->on_close = [generation, fail, closed] { fail(*generation, closed); };
  gate->enqueue(ticket);
  return Generation(std::move(generation), shared_from_this());
}

void SchedulerState::fill(Statistics& out) const {
  process.check("scheduler");
  gate->fill(out);
  out.max_concurrent_reason =
      out.max_concurrent == max_concurrent_ ? max_concurrent_reason_ : "resized";
  std::shared_ptr<DecodeLoop> loop;
  {
    std::lock_guard lock(mutex_);
    loop = loop_;
    if (engine_) out.layout = options_.layout;
  }
  if (loop) loop->fill(out);
}

std::vector<DeviceMemory> SchedulerState::memory() const {
  process.check("scheduler");
  std::shared_ptr<DecodeLoop> loop;
  {
    std::lock_guard lock(mutex_);
    loop = loop_;
  }
  return loop ? loop->memory() : std::vector<DeviceMemory>();
}

bool SchedulerState::close(bool drain, std::optional<Duration> timeout,
                           const std::function<void()>& look_up) {
  process.check("scheduler");
  const TimePoint deadline = timeout ? deadline_after(clock->now(), *timeout) : TimePoint::max();
  gate->refuse_new();
  bool complete = true;
  if (drain) {
    try {
      while (!(complete = gate->wait_idle(deadline, real_time_after(kLookUpEvery))) &&
             clock->now() < deadline) {
        if (look_up) look_up();
      }
    } catch (...) {
      // What still runs is not waited for.
      if (const auto loop = begin_close().loop) loop->request_stop();
      throw;
    }
  }
  const Ending ending = begin_close();
  // A step that runs gets a moment to end even when draining took all the time: it is not stuck.
  const Duration left = timeout ? std::max(kStopGrace, deadline - clock->now()) : kStopTimeout;
  if (ending.maker) {
    const RealTime end = real_time_after(left);
    while (!ending.maker->wait_until(std::min(end, real_time_after(kLookUpEvery)))) {
      if (std::chrono::steady_clock::now() >= end) return false;
      if (look_up) look_up();
    }
  }
  return (!ending.loop || ending.loop->stop(left, look_up)) && complete;
}

// The waiting end, and nothing new begins. Returns what is to be stopped.
SchedulerState::Ending SchedulerState::begin_close() {
  gate->close();
  const Lock lock(mutex_);
  closed_ = true;
  if (maker_) maker_->cancel();
  return {loop_, maker_};
}

}  // namespace pronk::inline v0
