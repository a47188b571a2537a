#include "generation_state.h"

#include <algorithm>
#include <utility>

#include "pronk/error.h"

namespace pronk::inline v0 {
namespace {

TraceResult trace_result(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return TraceResult::kStop;
    case FinishReason::kLength:
      return TraceResult::kLength;
    case FinishReason::kToolCalls:
      return TraceResult::kToolCalls;
    case FinishReason::kCancelled:
      return TraceResult::kCancelled;
  }
  return TraceResult::kNone;
}

}  // namespace

GenerationState::GenerationState(std::vector<Token> prompt_in, const GenerationParams& params_in,
                                 std::shared_ptr<Clock> clock_in, ChatReply reply)
    : prompt(std::move(prompt_in)),
      params(params_in),
      clock(std::move(clock_in)),
      created(clock->now()),
      shown_(std::move(reply.shown)),
      reply_(std::move(reply.stream)) {
  completion_.is_json = !params.json_schema.empty();
  completion_.usage.prompt_tokens = static_cast<std::int32_t>(prompt.size());
}

StreamStatus GenerationState::next_for(std::string& piece, Duration timeout, Duration slice) {
  if (reply_) {
    const auto take = [&] {
      piece = reply_->take_content();
      return !piece.empty();
    };
    return next_of_reply(take, timeout, slice);
  }
  process.check("generation");
  const TimePoint deadline = deadline_after(clock->now(), timeout);
  const RealTime latest = real_time_after(slice);
  std::unique_lock lock(mutex_);
  while (completion_.text.size() == taken_ && !done_) {
    if (timeout == Duration::zero() || clock->now() >= deadline) return StreamStatus::kTimeout;
    if (std::chrono::steady_clock::now() >= latest) return StreamStatus::kTimeout;
    clock->wait_until(changed_, lock, deadline, latest);
  }
  if (completion_.text.size() > taken_) {
    piece.assign(completion_.text, taken_);
    taken_ = completion_.text.size();
    return StreamStatus::kPiece;
  }
  return end_of_stream();
}

StreamStatus GenerationState::next_delta_for(ChatDelta& delta, Duration timeout, Duration slice) {
  if (!reply_) {
    throw InvalidArgumentError(
        "deltas: got a generation of plain text, expected one of a chat, iterate it instead");
  }
  const auto take = [&] {
    delta = reply_->take_delta();
    return !delta.empty();
  };
  return next_of_reply(take, timeout, slice);
}

// `take` looks for something new with reply_mutex_ held.
template <class Take>
StreamStatus GenerationState::next_of_reply(const Take& take, Duration timeout, Duration slice) {
  process.check("generation");
  const TimePoint deadline = deadline_after(clock->now(), timeout);
  const RealTime latest = real_time_after(slice);
  for (;;) {
    std::size_t n_read = 0;
    {
      const std::lock_guard reading(reply_mutex_);
      const bool ended = read_reply();
      if (take()) return StreamStatus::kPiece;
      if (ended) break;
      n_read = reply_->n_pushed();
    }
    std::unique_lock lock(mutex_);
    while (completion_.text.size() <= n_read && !done_) {
      if (timeout == Duration::zero() || clock->now() >= deadline) return StreamStatus::kTimeout;
      if (std::chrono::steady_clock::now() >= latest) return StreamStatus::kTimeout;
      clock->wait_until(changed_, lock, deadline, latest);
    }
  }
  const std::lock_guard lock(mutex_);
  return end_of_stream();
}

// Reads what has come, with reply_mutex_ held. True once all was read.
bool GenerationState::read_reply() const {
  std::string text;
  bool ended = false;
  FinishReason reason{};
  {
    const std::lock_guard lock(mutex_);
    text = completion_.text.substr(reply_->n_pushed());
    ended = done_;
    reason = completion_.finish_reason;
  }
  reply_->push(text, ended);
  if (ended) reply_->finish(reason);
  return ended;
}

// How a stream ends of which all was taken. With mutex_ held.
StreamStatus GenerationState::end_of_stream() const {
  if (error_) std::rethrow_exception(error_);
  if (completion_.finish_reason == FinishReason::kCancelled) {
    throw GenerationCancelled(
        "generation: got cancelled after " + std::to_string(completion_.tokens.size()) +
        " tokens, expected it to run to its end, see result() for what it had");
  }
  return StreamStatus::kEnd;
}

bool GenerationState::wait_for(Duration timeout, Duration slice) const {
  process.check("generation");
  const TimePoint deadline = deadline_after(clock->now(), timeout);
  const RealTime latest = real_time_after(slice);
  std::unique_lock lock(mutex_);
  while (!done_) {
    if (timeout == Duration::zero() || clock->now() >= deadline) return false;
    if (std::chrono::steady_clock::now() >= latest) return false;
    clock->wait_until(changed_, lock, deadline, latest);
  }
  return true;
}

bool GenerationState::done() const {
  process.check("generation");
  std::lock_guard lock(mutex_);
  return done_;
}

Completion GenerationState::result() const {
  wait_for(Duration::max());
  std::unique_lock<std::mutex> reading;
  if (reply_) {
    reading = std::unique_lock(reply_mutex_);
    read_reply();
  }
  std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  Completion completion = completion_;
  if (reply_) {
    completion.message = reply_->message();
    completion.text = completion.message->content;
    completion.finish_reason = reply_->reason();
  }
  return completion;
}

bool GenerationState::shows(Token token) const noexcept {
  return std::binary_search(shown_.begin(), shown_.end(), token);
}

std::string GenerationState::text() const {
  process.check("generation");
  if (reply_) {
    const std::lock_guard reading(reply_mutex_);
    read_reply();
    return reply_->message().content;
  }
  std::lock_guard lock(mutex_);
  return completion_.text;
}

void GenerationState::listen(Listener listener) {
  process.check("generation");
  std::shared_ptr<Mailbox> ring;
  {
    std::lock_guard lock(mutex_);
    listener_ = std::move(listener);
    if (done_ || completion_.text.size() > taken_) ring = post();
  }
  if (ring) ring->ring();
}

void GenerationState::cancel() noexcept {
  if (process.forked()) return;
  {
    std::lock_guard lock(mutex_);
    if (ending_) return;
  }
  if (!cancel_requested_.exchange(true, std::memory_order_acq_rel) && on_cancel) on_cancel();
}

void GenerationState::when_ended(std::function<void()> function) {
  {
    std::lock_guard lock(mutex_);
    if (!ending_) {
      when_ended_ = std::move(function);
      return;
    }
  }
  function();
}

void GenerationState::started(std::int32_t cached_tokens, std::int32_t lane) {
  std::lock_guard lock(mutex_);
  started_ = true;
  lane_ = lane;
  started_at_ = prefilled_at_ = clock->now();
  completion_.usage.cached_tokens = cached_tokens;
  completion_.timings.queued = to_seconds(started_at_ - created);
  if (trace && trace->on()) {
    trace->add({TraceKind::kQueued,
                TraceResult::kNone,
                lane,
                created,
                started_at_,
                number,
                {completion_.usage.prompt_tokens, cached_tokens}});
  }
}

void GenerationState::prefilled() {
  std::lock_guard lock(mutex_);
  prefilled_at_ = clock->now();
  completion_.timings.prefill = to_seconds(prefilled_at_ - started_at_);
}

std::shared_ptr<Mailbox> GenerationState::append(Token token, std::string_view text,
                                                 TokenLogprob* logprob) {
  std::lock_guard lock(mutex_);
  if (ending_) return nullptr;  // given up by close(), while the thread was stuck
  const TimePoint now = clock->now();
  if (completion_.tokens.empty()) {
    first_token_at_ = now;
    completion_.timings.first_token = to_seconds(now - created);
  }
  completion_.timings.decode = to_seconds(now - first_token_at_);
  completion_.tokens.push_back(token);
  completion_.usage.completion_tokens = static_cast<std::int32_t>(completion_.tokens.size());
  if (logprob != nullptr) completion_.logprobs.push_back(std::move(*logprob));
  if (text.empty()) return nullptr;
  completion_.text.append(text);
  changed_.notify_all();
  return post();
}

void GenerationState::append_text(std::string_view text) {
  std::lock_guard lock(mutex_);
  if (!ending_) completion_.text.append(text);
}

std::shared_ptr<Mailbox> GenerationState::finish(FinishReason reason) {
  return end(reason, nullptr);
}

std::shared_ptr<Mailbox> GenerationState::fail(std::exception_ptr error) {
  return end(FinishReason::kCancelled, std::move(error));
}

std::shared_ptr<Mailbox> GenerationState::end(FinishReason reason, std::exception_ptr error) {
  std::function<void()> when_ended;
  {
    std::lock_guard lock(mutex_);
    if (ending_) return nullptr;
    ending_ = true;
    when_ended = std::exchange(when_ended_, nullptr);
  }
  // Before the consumer can see the end: it may use the permit again at once.
  if (when_ended) when_ended();
  std::lock_guard lock(mutex_);
  if (!started_) completion_.timings.queued = to_seconds(clock->now() - created);
  completion_.finish_reason = reason;
  error_ = std::move(error);
  if (trace && trace->on()) trace_end();
  done_ = true;
  changed_.notify_all();
  return post();
}

// Called with the mutex held.
void GenerationState::trace_end() const {
  const Usage& usage = completion_.usage;
  TraceEvent event;
  event.result = error_ ? TraceResult::kFailed : trace_result(completion_.finish_reason);
  event.end = clock->now();
  event.number = number;
  if (started_) {
    event.kind = TraceKind::kGeneration;
    event.track = lane_;
    event.begin = started_at_;
    event.values = {usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens};
  } else {
    event.kind = TraceKind::kQueued;
    event.begin = created;
    event.values = {usage.prompt_tokens, -1};
  }
  trace->add(event);
}

std::shared_ptr<Mailbox> GenerationState::post() {
  if (listener_.mailbox) listener_.mailbox->post(listener_.key);
  return listener_.mailbox;
}

}  // namespace pronk::inline v0
