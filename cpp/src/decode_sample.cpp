// The end of a step: choosing tokens, handing them out, ending generations, publishing the
// counters.
#include <algorithm>
#include <utility>

#include "decode_loop.h"
#include "pronk/error.h"

namespace pronk::inline v0 {
namespace {

// Rows of a batch, and logits in them, from which on they are sampled by several threads. Below,
// waking the threads costs more than it saves: measured by the workload "sampling" of the
// benchmarks.
constexpr std::size_t kParallelRows = 4;
constexpr std::size_t kParallelLogits = std::size_t{1} << 18;
// What part of a step the others wait at most for a lane with a grammar.
constexpr int kPatience = 20;

}  // namespace

void DecodeLoop::sample_batch() {
  const TimePoint begin = trace_->on() ? clock_->now() : TimePoint::max();
  const RealTime started = std::chrono::steady_clock::now();
  picks_.clear();
  std::size_t n_logits = 0;
  bool sent = false;
  for (std::size_t i = 0; i < batch_.runs.size(); ++i) {
    if (batch_.outputs[i] < 0) continue;
    Run& run = *batch_.runs[i];
    Pick& pick = picks_.emplace_back();
    pick.run = &run;
    try {
      // The context's own business: on this thread.
      pick.row = contexts_[batch_.context]->logits(batch_.outputs[i]);
      if (pick.row.empty())
        throw BackendError("decode: got no logits, expected a row of them, retry the generation");
      if (run.sampling->grammar) {
        send_away(run, pick.row);
        picks_.pop_back();
        sent = true;
        continue;
      }
    } catch (...) {
      run.sampling->error = std::current_exception();
      run.sampling->bad_row = true;
      pick.row = {};
    }
    n_logits += pick.row.size();
  }
  const auto choose = [this](std::size_t i) {
    const Pick& pick = picks_[i];
    if (!pick.row.empty()) pick.run->sampling->choose(pick.row);
  };
  if (picks_.size() >= kParallelRows && n_logits >= kParallelLogits) {
    workers_.run(picks_.size(), choose);
  } else {
    for (std::size_t i = 0; i < picks_.size(); ++i) choose(i);
  }
  for (const Pick& pick : picks_) take(*pick.run);
  for (std::size_t i = 0; i < batch_.runs.size(); ++i) {
    if (batch_.outputs[i] < 0 && batch_.runs[i]->remaining() == 0 && !batch_.runs[i]->awaiting) {
      end_run(*batch_.runs[i], FinishReason::kLength, nullptr);
    }
  }
  if (sent) {
    // Most are done by now. Waiting a little for the others keeps them in step with the rest.
    const auto step = std::chrono::duration_cast<Duration>(started - step_began_);
    wait_for_chosen(picks_.empty() ? step / 2 : step / kPatience);
    take_chosen();
  }
  if (begin != TimePoint::max()) trace_sample(begin);
}

// Has the next token chosen by another thread: a grammar may take its time, which is to be nobody
// else's.
void DecodeLoop::send_away(Run& run, std::span<const float> row) {
  const std::shared_ptr<LaneSampling> sampling = run.sampling;
  sampling->own_row.assign(row.begin(), row.end());
  {
    std::lock_guard lock(inbox_mutex_);
    sampling->chosen = false;
  }
  errands_.send([this, sampling] {
    sampling->choose_own();
    std::lock_guard lock(inbox_mutex_);
    sampling->chosen = true;
    inbox_changed_.notify_all();
  });
  run.awaiting = true;
}

// Waits until all tokens that are being chosen elsewhere are; with a limit of Duration::max() until
// one is, or there is something else to do. False when nothing is awaited.
bool DecodeLoop::wait_for_chosen(Duration at_most) {
  const bool for_ever = at_most == Duration::max();
  const auto is_due = [](const auto& run) { return run->awaiting && run->sampling->chosen; };
  const auto is_open = [](const auto& run) { return run->awaiting && !run->sampling->chosen; };
  std::unique_lock lock(inbox_mutex_);
  if (std::none_of(runs_.begin(), runs_.end(), [](const auto& run) { return run->awaiting; })) {
    return false;
  }
  const auto enough = [&] {
    if (stop_) return true;
    if (for_ever && (poked_ || !inbox_.empty())) return true;
    return for_ever ? std::any_of(runs_.begin(), runs_.end(), is_due)
                    : std::none_of(runs_.begin(), runs_.end(), is_open);
  };
  if (for_ever) {
    inbox_changed_.wait(lock, enough);
  } else {
    inbox_changed_.wait_until(lock, real_time_after(at_most), enough);
  }
  return true;
}

void DecodeLoop::take_chosen() {
  std::vector<Run*> due;
  {
    std::lock_guard lock(inbox_mutex_);
    for (const auto& run : runs_) {
      if (run->awaiting && run->sampling->chosen) due.push_back(run.get());
    }
  }
  for (Run* run : due) {
    run->awaiting = false;
    take(*run);
  }
}

void DecodeLoop::take(Run& run) {
  LaneSampling& sampling = *run.sampling;
  if (sampling.error) {
    // Logits that cannot be sampled come from a state that must not be reused.
    if (sampling.bad_row) sequences_->cut(*run.sequence, 0, true);
    return end_run(run, FinishReason::kCancelled, std::move(sampling.error));
  }
  if (engine_->is_eog(sampling.token)) return end_run(run, FinishReason::kStop, nullptr);
  const bool logprobs = run.generation->params.logprobs >= 0;
  append(run, sampling.token, logprobs ? &sampling.logprob : nullptr);
  // What has to follow goes through the model in one go, like a prompt.
  for (const Token token : sampling.forced) {
    if (run.text.stopped() || run.full()) break;
    append(run, token, nullptr);
  }
  if (run.text.stopped() || sampling.finished) {
    end_run(run, FinishReason::kStop, nullptr);
  } else if (run.full()) {
    end_run(run, FinishReason::kLength, nullptr);
  }
}

void DecodeLoop::append(Run& run, Token token, TokenLogprob* logprob) {
  run.tokens.push_back(token);
  run.sampling->sampler.accept(token);
  ++counters_.completion_tokens;
  piece_.clear();
  engine_->impl().append_piece(token, run.generation->shows(token), piece_);
  run.text.push(piece_);
  ring_later(run.generation->append(token, run.text.take(), logprob));
}

// The lane is settled before the generation counts as ended: its end frees the permit.
void DecodeLoop::end_run(Run& run, FinishReason reason, std::exception_ptr error) {
  const auto it =
      std::find_if(runs_.begin(), runs_.end(), [&](const auto& r) { return r.get() == &run; });
  const std::unique_ptr<Run> ended = std::move(*it);
  *it = std::move(runs_.back());
  runs_.pop_back();
  if (static_cast<std::size_t>(run.sequence->id) < by_sequence_.size() &&
      by_sequence_[run.sequence->id] == &run) {
    by_sequence_[run.sequence->id] = nullptr;
  }
  GenerationState& generation = *run.generation;
  sequences_->give_back(*run.sequence, generation.params.cache);
  if (!run.text.stopped()) run.text.finish();
  generation.append_text(run.text.take());
  ++(error                                ? counters_.failed
     : reason == FinishReason::kCancelled ? counters_.cancelled
                                          : counters_.completed);
  {
    std::lock_guard lock(inbox_mutex_);
    live_.erase(run.generation);
  }
  publish(-1);  // who has seen the end finds it in the statistics too
  ring_later(error ? generation.fail(std::move(error)) : generation.finish(reason));
}

void DecodeLoop::end_unstarted(const std::shared_ptr<GenerationState>& generation,
                               std::exception_ptr error) {
  ++counters_.generations;
  ++(error ? counters_.failed : counters_.cancelled);
  {
    std::lock_guard lock(inbox_mutex_);
    live_.erase(generation);
  }
  ring_later(error ? generation->fail(std::move(error))
                   : generation->finish(FinishReason::kCancelled));
}

void DecodeLoop::ring_later(std::shared_ptr<Mailbox> mailbox) {
  if (mailbox && std::find(to_ring_.begin(), to_ring_.end(), mailbox) == to_ring_.end()) {
    to_ring_.push_back(std::move(mailbox));
  }
}

void DecodeLoop::ring_mailboxes() {
  for (const auto& mailbox : to_ring_) mailbox->ring();
  to_ring_.clear();
}

// Hands the counters to statistics(), which must never wait for a step.
void DecodeLoop::publish(double step_seconds) {
  counters_.running = static_cast<std::int32_t>(runs_.size());
  counters_.cached_sequences = 0;
  counters_.kv_tokens = 0;
  for (const auto& sequence : sequences_->sequences()) {
    counters_.kv_tokens += sequence->tokens.size();
    if (!sequence->busy && !sequence->tokens.empty()) ++counters_.cached_sequences;
  }
  counters_.kv_cells = sequences_->cells_used();
  counters_.reuse = sequences_->counters();
  counters_.n_threads = governor_ ? governor_->n_threads() : options_.n_threads;
  counters_.healthy = failed_decodes_ < kUnhealthyAfter;
  if (step_seconds >= 0) ++counters_.steps;
  std::lock_guard lock(published_mutex_);
  published_ = counters_;
  if (step_seconds >= 0) step_times_.add(step_seconds, tally_.tokens());
}

}  // namespace pronk::inline v0
