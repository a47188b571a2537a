// The end of a step: choosing tokens, handing them out, ending generations, publishing the
// counters.
#include <algorithm>
#include <utility>

#include "decode_loop.h"
#include "pronk/error.h"

namespace pronk::inline v0 {
namespace {

// Logits in a batch from which on its rows are sampled by several threads. Below, waking them costs
// more than it saves.
constexpr std::size_t kParallelLogits = std::size_t{1} << 20;

}  // namespace

void DecodeLoop::sample_batch() {
  const TimePoint begin = trace_->on() ? clock_->now() : TimePoint::max();
  picks_.clear();
  std::size_t n_logits = 0;
  for (std::size_t i = 0; i < batch_.runs.size(); ++i) {
    if (batch_.outputs[i] < 0) continue;
    Pick& pick = picks_.emplace_back();
    pick.run = batch_.runs[i];
    try {
      // The context's own business: on this thread.
      pick.row = contexts_[batch_.context]->logits(batch_.outputs[i]);
      if (pick.row.empty())
        throw BackendError("decode: got no logits, expected a row of them, retry the generation");
    } catch (...) {
      pick.error = std::current_exception();
    }
    if (pick.run->generation->params.sampling.temperature > 0) n_logits += pick.row.size();
  }
  const auto choose = [this](std::size_t i) { picks_[i].choose(); };
  if (n_logits >= kParallelLogits) {
    workers_.run(picks_.size(), choose);
  } else {
    for (std::size_t i = 0; i < picks_.size(); ++i) choose(i);
  }
  for (Pick& pick : picks_) take(pick);
  for (std::size_t i = 0; i < batch_.runs.size(); ++i) {
    if (batch_.outputs[i] < 0 && batch_.runs[i]->remaining() == 0) {
      end_run(*batch_.runs[i], FinishReason::kLength, nullptr);
    }
  }
  if (begin != TimePoint::max()) trace_sample(begin);
}

void DecodeLoop::Pick::choose() noexcept {
  if (error) return;
  const std::int32_t n_top = run->generation->params.logprobs;
  try {
    token = run->sampler.sample(row, std::max(n_top, 0), n_top >= 0 ? &logprob : nullptr);
  } catch (const Error&) {
    error = std::current_exception();
  } catch (const std::exception& e) {
    error = std::make_exception_ptr(BackendError("sampling: got " + std::string(e.what()) +
                                                 ", expected a token, retry the generation"));
  }
}

void DecodeLoop::take(Pick& pick) {
  Run& run = *pick.run;
  if (pick.error) {
    // Logits that cannot be sampled come from a state that must not be reused.
    sequences_->cut(*run.sequence, 0, true);
    return end_run(run, FinishReason::kCancelled, std::move(pick.error));
  }
  if (engine_->is_eog(pick.token)) return end_run(run, FinishReason::kStop, nullptr);

  run.tokens.push_back(pick.token);
  run.sampler.accept(pick.token);
  ++counters_.completion_tokens;
  piece_.clear();
  engine_->impl().append_piece(pick.token, run.generation->shows(pick.token), piece_);
  const bool stopped = run.text.push(piece_);
  const bool logprobs = run.generation->params.logprobs >= 0;
  ring_later(
      run.generation->append(pick.token, run.text.take(), logprobs ? &pick.logprob : nullptr));
  if (stopped) {
    end_run(run, FinishReason::kStop, nullptr);
  } else if (run.full()) {
    end_run(run, FinishReason::kLength, nullptr);
  }
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
