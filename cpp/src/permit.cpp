#include "pronk/permit.h"

#include <utility>

#include "permit_state.h"
#include "pronk/error.h"
#include "scheduler_state.h"

namespace pronk::inline v0 {
namespace {

[[noreturn]] void throw_released() {
  throw PermitReleasedError(
      "permit: got a call after its release, expected a held permit, acquire another one");
}

}  // namespace

void HeldPermit::begin(std::shared_ptr<GenerationState> generation) {
  std::lock_guard lock(mutex_);
  if (released_) throw_released();
  if (running_) {
    throw PermitBusyError(
        "permit: got a second generation while one runs, expected one at a time, "
        "wait for it, cancel it, or acquire another permit");
  }
  running_ = std::move(generation);
}

void HeldPermit::end() noexcept {
  bool give_back;
  std::uint64_t owner;
  {
    std::lock_guard lock(mutex_);
    running_ = nullptr;
    give_back = released_;
    owner = owner_;
  }
  if (give_back) gate_->release(owner);
}

void HeldPermit::release() noexcept {
  if (gate_->process.forked()) return;
  std::shared_ptr<GenerationState> running;
  std::uint64_t owner;
  {
    std::lock_guard lock(mutex_);
    if (released_) return;
    released_ = true;
    running = running_;
    // It comes back without the holder's doing, who may well wait for it.
    if (running) gate_->disown(std::exchange(owner_, 0));
    owner = owner_;
  }
  if (running) {
    running->cancel();  // its end gives the permit back
  } else {
    gate_->release(owner);
  }
}

void HeldPermit::detach() noexcept {
  if (gate_->process.forked()) return;
  std::lock_guard lock(mutex_);
  if (released_) return;
  gate_->disown(std::exchange(owner_, 0));
}

bool HeldPermit::released() const noexcept {
  if (gate_->process.forked()) return true;
  std::lock_guard lock(mutex_);
  return released_;
}

PermitState::PermitState(std::shared_ptr<SchedulerState> scheduler, std::uint64_t owner)
    : scheduler_(std::move(scheduler)), held_(scheduler_->gate, owner) {}

void PermitState::create_pool(const std::function<void()>& look_up) {
  check_held();
  scheduler_->pool(look_up);
}

void PermitState::check_held() const {
  scheduler_->gate->process.check("permit");
  if (held_.released()) throw_released();
}

Generation PermitState::generate(std::string_view prompt, const GenerationParams& params) {
  check_held();
  return generate(scheduler_->tokenize(prompt), params);
}

Generation PermitState::generate(std::vector<Token> prompt, const GenerationParams& params) {
  check_held();
  const auto loop = scheduler_->pool();
  return run(loop, scheduler_->make_generation(std::move(prompt), params));
}

Generation PermitState::chat(std::string_view messages, const ChatParams& chat,
                             const GenerationParams& params) {
  check_held();
  const auto loop = scheduler_->pool();
  return run(loop, scheduler_->make_chat(messages, chat, params));
}

Generation PermitState::run(const std::shared_ptr<DecodeLoop>& loop,
                            std::shared_ptr<GenerationState> generation) {
  generation->on_cancel = [weak = std::weak_ptr(loop)] {
    if (const auto alive = weak.lock()) alive->interrupt();
  };
  generation->when_ended([self = shared_from_this()] { self->held_.end(); });
  held_.begin(generation);
  if (!loop->submit(generation)) {
    held_.end();
    throw SchedulerClosedError(
        "generate: got a closed scheduler, expected an open one, create a new one");
  }
  return Generation(std::move(generation), scheduler_);
}

InferencePermit::InferencePermit(std::shared_ptr<PermitState> state) noexcept
    : state_(std::move(state)) {}
InferencePermit::~InferencePermit() {
  release();
  if (state_) state_->drop_scheduler();
}
InferencePermit::InferencePermit(InferencePermit&&) noexcept = default;
InferencePermit& InferencePermit::operator=(InferencePermit&& other) noexcept {
  if (this != &other) {
    release();
    if (state_) state_->drop_scheduler();
    state_ = std::move(other.state_);
  }
  return *this;
}

Generation InferencePermit::generate(std::string_view prompt, const GenerationParams& params) {
  if (!state_) throw_released();
  return state_->generate(prompt, params);
}

Generation InferencePermit::generate(std::vector<Token> prompt, const GenerationParams& params) {
  if (!state_) throw_released();
  return state_->generate(std::move(prompt), params);
}

void InferencePermit::create_pool(const std::function<void()>& look_up) {
  if (!state_) throw_released();
  state_->create_pool(look_up);
}

Generation InferencePermit::chat(std::string_view messages, const ChatParams& chat,
                                 const GenerationParams& params) {
  if (!state_) throw_released();
  return state_->chat(messages, chat, params);
}

void InferencePermit::release() noexcept {
  if (state_) state_->held().release();
}

void InferencePermit::detach() noexcept {
  if (state_) state_->held().detach();
}

bool InferencePermit::released() const noexcept { return !state_ || state_->held().released(); }

}  // namespace pronk::inline v0
