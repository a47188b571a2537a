// One step of the decode loop.
#include <algorithm>
#include <string>
#include <utility>

#include "dead_backend.h"
#include "decode_loop.h"
#include "pronk/error.h"

namespace pronk::inline v0 {
namespace {

// A decode that fails may succeed with the lane alone: the fault may be another lane's, or pass.
// Twice is for good.
constexpr std::int32_t kMaxFailures = 2;

constexpr const char* kUnknownException = "an exception of an unknown type";

const char* describe(DecodeStatus status) {
  switch (status) {
    case DecodeStatus::kOk:
      return "success";
    case DecodeStatus::kNoSlot:
      return "no room in the KV cache";
    case DecodeStatus::kAborted:
      return "an aborted decode";
    case DecodeStatus::kInvalidBatch:
      return "a refused batch";
    case DecodeStatus::kNoMemory:
      return "a failed allocation";
    case DecodeStatus::kFailed:
      return "a failed computation";
  }
  return "an unknown status";
}

std::exception_ptr backend_error(const std::string& got) {
  return std::make_exception_ptr(
      BackendError("decode: got " + got + ", expected logits, retry the generation"));
}

}  // namespace

bool DecodeLoop::step() {
  const TimePoint begin = clock_->now();
  tally_ = {};
  bool worked = false;
  try {
    end_cancelled();
    mend_contexts();  // first: nobody is to be promised a prefix that is lost
    admit();
    mend_contexts();  // what is admitted to a context that cannot be made ends here
    take_chosen();
    ring_mailboxes();  // before the decode, which takes longer
    worked = !runs_.empty();
    const bool idle =
        std::all_of(runs_.begin(), runs_.end(), [](const auto& run) { return run->awaiting; });
    if (idle && wait_for_chosen(Duration::max())) {
      take_chosen();
      ring_mailboxes();
      return true;
    }
    for (std::int32_t c = 0; c < options_.n_contexts; ++c) step_context(c);
  } catch (const std::exception& e) {
    // Only an allocation of our own can fail here; which run it belonged to is not known.
    end_all(backend_error(e.what()));
  } catch (...) {
    end_all(backend_error(kUnknownException));
  }
  const TimePoint end = clock_->now();
  progress_ns_.store(end.time_since_epoch().count(), std::memory_order_relaxed);
  publish(worked ? to_seconds(end - begin) : -1);
  if (worked && trace_->on()) trace_step(begin, end);
  ring_mailboxes();
  return worked;
}

void DecodeLoop::admit() {
  std::vector<std::shared_ptr<GenerationState>> arrived;
  {
    std::lock_guard lock(inbox_mutex_);
    arrived.swap(inbox_);
  }
  const std::size_t n_waited = waiting_.size();
  waiting_.insert(waiting_.end(), arrived.begin(), arrived.end());
  for (const auto& run : runs_) run->pause_at = 0;
  std::size_t number = 0;
  for (const auto& generation : std::exchange(waiting_, {})) {
    const bool waited = number++ < n_waited;
    if (generation->cancel_requested()) {
      end_unstarted(generation, nullptr);
      continue;
    }
    try {
      if (must_wait(*generation, waited)) {
        waiting_.push_back(generation);
      } else {
        admit_one(generation);
      }
    } catch (const std::exception& e) {
      end_unstarted(generation, backend_error(e.what()));
    } catch (...) {
      end_unstarted(generation, backend_error(kUnknownException));
    }
  }
}

// A prompt that begins like one which is just being evaluated waits for the common part, so that a
// system prompt shared by agents that arrive together is evaluated once. It waits for tokens that
// are due in any case; one that has waited stays for the last few.
bool DecodeLoop::must_wait(const GenerationState& generation, bool waited) {
  if (!options_.share_prefixes || !generation.params.cache) return false;
  const std::span<const Token> prompt(generation.prompt);
  const std::size_t known = sequences_->longest_known(prompt, generation.params.cache_scope);
  Run* ahead = nullptr;
  std::size_t best = known + (waited ? 1 : kWorthSharing);
  for (const auto& run : runs_) {
    if (run->prefilled || !run->generation->params.cache ||
        run->sequence->scope != generation.params.cache_scope) {
      continue;
    }
    const std::size_t n = common_prefix(run->tokens, prompt.first(prompt.size() - 1));
    if (n >= best && n > run->sequence->tokens.size()) {
      best = n;
      ahead = run.get();
    }
  }
  if (ahead == nullptr) return false;
  const auto at = static_cast<std::int32_t>(best);
  ahead->pause_at = ahead->pause_at == 0 ? at : std::min(ahead->pause_at, at);
  return true;
}

void DecodeLoop::admit_one(const std::shared_ptr<GenerationState>& generation) {
  const GenerationParams& params = generation->params;
  Sequence* sequence = sequences_->take(generation->prompt, params.cache_scope, params.cache);
  if (sequence == nullptr) throw BackendError("no free lane");
  try {
    runs_.push_back(std::make_unique<Run>(generation, sequence, options_.n_ctx, engine_->info(),
                                          engine_->impl().eog_tokens()));
  } catch (...) {
    sequences_->give_back(*sequence, true);
    throw;
  }
  ++counters_.generations;
  counters_.prompt_tokens += generation->prompt.size();
  runs_.back()->n_cached = static_cast<std::int32_t>(sequence->tokens.size());
  generation->started(runs_.back()->n_cached, lane_of(*sequence));
}

void DecodeLoop::end_cancelled() {
  for (std::size_t i = runs_.size(); i-- > 0;) {
    if (runs_[i]->generation->cancel_requested())
      end_run(*runs_[i], FinishReason::kCancelled, nullptr);
  }
}

// Creates broken contexts anew. Their runs evaluate everything again.
void DecodeLoop::mend_contexts() {
  for (std::int32_t c = 0; c < options_.n_contexts; ++c) {
    if (!sequences_->broken(c)) continue;
    free_context(c);  // before the new one is made: two may not fit
    try {
      auto fresh = options_.make_context(c);
      sequences_->replace_context(c, fresh.get());
      contexts_[c] = std::move(fresh);
    } catch (const std::exception& e) {
      context_lost(c, e.what());
    } catch (...) {
      context_lost(c, kUnknownException);
    }
  }
}

// It is tried again when there is work.
void DecodeLoop::context_lost(std::int32_t context, const std::string& what) {
  failed_decodes_ = kUnhealthyAfter;
  for (std::size_t i = runs_.size(); i-- > 0;) {
    if (runs_[i]->sequence->context == context)
      end_run(*runs_[i], FinishReason::kCancelled, backend_error(what));
  }
  sequences_->mark_broken(context);
}

void DecodeLoop::free_context(std::int32_t context) {
  auto dead = std::make_unique<DeadBackend>(*contexts_[context]);
  sequences_->replace_context(context, dead.get());
  contexts_[context] = std::move(dead);
}

void DecodeLoop::step_context(std::int32_t context) {
  by_sequence_.assign(static_cast<std::size_t>(contexts_[context]->n_seq()), nullptr);
  work_.clear();
  for (const auto& run : runs_) {
    if (run->sequence->context == context) by_sequence_[run->sequence->id] = run.get();
  }
  for (std::size_t id = 0; id < by_sequence_.size(); ++id) {
    const Run* run = by_sequence_[id];
    if (run == nullptr || run->awaiting) continue;
    const std::int32_t remaining = run->remaining();
    work_.push_back({static_cast<std::int32_t>(id), remaining, run->until_pause(), run->alone});
  }
  if (work_.empty()) return;
  for (const BatchPlan& plan : policies_[context].plan(work_)) {
    fill_batch(plan, context);
    if (!batch_.runs.empty()) decode_batch();
    if (sequences_->broken(context)) return;
  }
}

void DecodeLoop::fill_batch(const BatchPlan& plan, std::int32_t context) {
  batch_.context = context;
  batch_.runs.clear();
  batch_.sizes.clear();
  batch_.outputs.clear();
  batch_.items.clear();
  for (const Slice& slice : plan) {
    Run* run = by_sequence_[slice.lane];
    // An earlier batch of this step may have ended the run, or failed with it.
    if (run == nullptr || (run->alone && plan.size() > 1)) continue;
    const auto first = static_cast<std::int32_t>(run->sequence->tokens.size());
    const std::int32_t n = std::min(slice.n_tokens, run->remaining());
    const bool output = n == run->remaining() && !run->full();
    for (std::int32_t i = 0; i < n; ++i) {
      batch_.items.push_back(
          {run->tokens[first + i], first + i, run->sequence->id, output && i + 1 == n});
    }
    batch_.runs.push_back(run);
    batch_.sizes.push_back(n);
    batch_.outputs.push_back(output ? static_cast<std::int32_t>(batch_.items.size()) - 1 : -1);
  }
}

// Makes the decode interruptible. False when nobody wants its result any more.
bool DecodeLoop::enter_decode() {
  std::lock_guard lock(decode_mutex_);
  for (const Run* run : batch_.runs) in_decode_.push_back(run->generation.get());
  if (abort_all_ || std::all_of(in_decode_.begin(), in_decode_.end(),
                                [](const GenerationState* g) { return g->cancel_requested(); })) {
    in_decode_.clear();
    return false;
  }
  decoding_ = contexts_[batch_.context].get();
  return true;
}

void DecodeLoop::leave_decode() {
  std::lock_guard lock(decode_mutex_);
  decoding_->abort(false);
  decoding_ = nullptr;
  in_decode_.clear();
}

void DecodeLoop::decode_batch() {
  if (!enter_decode()) return;
  Backend& context = *contexts_[batch_.context];
  const TimePoint begin = clock_->now();
  step_began_ = std::chrono::steady_clock::now();
  DecodeStatus status = DecodeStatus::kFailed;
  std::string thrown;
  try {
    if (governor_) context.set_threads(governor_->n_threads());
    do {
      status = context.decode(batch_.items);
    } while (status == DecodeStatus::kNoSlot && sequences_->evict(batch_.context));
  } catch (const std::exception& e) {
    thrown = e.what();
    if (thrown.empty()) thrown = "an exception";
  } catch (...) {
    thrown = kUnknownException;
  }
  leave_decode();
  if (trace_->on()) trace_batch(begin, clock_->now(), status);
  if (!thrown.empty()) return context_threw(thrown);
  if (status != DecodeStatus::kOk) return batch_failed(status);

  failed_decodes_ = 0;
  std::int32_t n_decode = 0;
  std::size_t item = 0;
  for (std::size_t i = 0; i < batch_.runs.size(); ++i) {
    Run& run = *batch_.runs[i];
    const auto n = static_cast<std::size_t>(batch_.sizes[i]);
    const auto first = static_cast<std::ptrdiff_t>(run.sequence->tokens.size());
    sequences_->extend(*run.sequence, {run.tokens.begin() + first, n});
    counters_.evaluated += n;
    item += n;
    run.failures = 0;
    run.alone = false;
    if (run.prefilled) ++n_decode;
    if (run.remaining() == 0 && !run.prefilled) {
      run.prefilled = true;
      run.generation->prefilled();
    }
  }
  const auto n_tokens = static_cast<std::int32_t>(item);
  tally_.decode += n_decode;
  tally_.prompt += n_tokens - n_decode;
  sample_batch();
  const double seconds = to_seconds(clock_->now() - begin);
  policies_[batch_.context].observe(n_decode, n_tokens - n_decode, seconds);
  if (governor_) governor_->observe(n_tokens, seconds);
}

// The context tells what happened to the batch. Everything that it may have applied is taken back,
// so that each lane can be tried again by itself.
void DecodeLoop::batch_failed(DecodeStatus status) {
  for (Run* run : batch_.runs) {
    // A refused batch means that the context's positions are not what we think, even where we think
    // that there are none.
    const std::size_t n = status == DecodeStatus::kInvalidBatch ? 0 : run->sequence->tokens.size();
    sequences_->cut(*run->sequence, n, status != DecodeStatus::kNoSlot);
  }
  if (status == DecodeStatus::kAborted) {
    std::lock_guard lock(decode_mutex_);
    if (abort_all_ || std::all_of(batch_.runs.begin(), batch_.runs.end(), [](const Run* run) {
          return run->generation->cancel_requested();
        })) {
      return;
    }
  }
  ++failed_decodes_;
  for (Run* run : batch_.runs) {
    run->alone = true;
    if (++run->failures >= kMaxFailures)
      end_run(*run, FinishReason::kCancelled, backend_error(describe(status)));
  }
}

// After an exception nothing is known of the context: it is given up with the generations that were
// in the batch.
void DecodeLoop::context_threw(const std::string& what) {
  ++failed_decodes_;
  sequences_->mark_broken(batch_.context);
  for (Run* run : batch_.runs) end_run(*run, FinishReason::kCancelled, backend_error(what));
}

}  // namespace pronk::inline v0
