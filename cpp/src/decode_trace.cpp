// What the decode loop tells the trace. Called only while one is recorded.
#include "decode_loop.h"

namespace pronk::inline v0 {

// Counts the sequences of all contexts.
std::int32_t DecodeLoop::lane_of(const Sequence& sequence) const {
  return sequence.context * contexts_[sequence.context]->n_seq() + sequence.id;
}

// Before the batch is taken over, so that its runs are as they went into it.
void DecodeLoop::trace_batch(TimePoint begin, TimePoint end, DecodeStatus status) const {
  TraceEvent batch{TraceKind::kBatch, TraceResult::kNone, 0, begin, end};
  if (status == DecodeStatus::kAborted) {
    batch.result = TraceResult::kCancelled;
  } else if (status != DecodeStatus::kOk) {
    batch.result = TraceResult::kFailed;
  }
  std::int64_t n_tokens = 0;
  std::int64_t n_decode = 0;
  for (std::size_t i = 0; i < batch_.runs.size(); ++i) {
    const Run& run = *batch_.runs[i];
    const std::int32_t n = batch_.sizes[i];
    const auto position = static_cast<std::int64_t>(run.sequence->tokens.size());
    TraceEvent chunk{TraceKind::kDecode,    batch.result, lane_of(*run.sequence), begin, end,
                     run.generation->number};
    // After a failure a prompt is evaluated again, in chunks, whose last one may be a single token.
    if (run.prefilled && n == 1) {
      chunk.values = {position};
    } else {
      chunk.kind = TraceKind::kPrefill;
      chunk.values = {n, position, run.n_cached};
    }
    trace_->add(chunk);
    n_tokens += n;
    if (run.prefilled) ++n_decode;
  }
  batch.values = {n_tokens, n_decode, n_tokens - n_decode, batch_.context};
  trace_->add(batch);
}

void DecodeLoop::trace_sample(TimePoint begin) const {
  if (picks_.empty()) return;
  trace_->add({TraceKind::kSample,
               TraceResult::kNone,
               0,
               begin,
               clock_->now(),
               0,
               {static_cast<std::int64_t>(picks_.size()), batch_.context}});
}

// After publish(), which counts.
void DecodeLoop::trace_step(TimePoint begin, TimePoint end) const {
  trace_->add({TraceKind::kStep,
               TraceResult::kNone,
               0,
               begin,
               end,
               0,
               {tally_.tokens(), tally_.decode, tally_.prompt}});
  trace_->add({TraceKind::kPool,
               TraceResult::kNone,
               0,
               end,
               end,
               0,
               {static_cast<std::int64_t>(counters_.kv_tokens),
                static_cast<std::int64_t>(counters_.kv_cells), counters_.cached_sequences,
                counters_.running}});
}

}  // namespace pronk::inline v0
