// Says which tokens go into the next batches. Pure: it knows neither a model nor a clock.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "chunk_cost.h"

namespace pronk::inline v0 {

/// What one lane has to evaluate. A lane with a single token left is decoding (or ends its prompt,
/// which costs the same); one with more is in prefill.
struct LaneWork {
  std::int32_t lane = 0;       ///< ascending along the work list
  std::int32_t remaining = 0;  ///< tokens, >= 1
  std::int32_t most = 0;       ///< take no more than so many in this step, 1 to remaining
  bool alone = false;          ///< must not share a batch: its last one failed
};

struct Slice {
  std::int32_t lane = 0;
  std::int32_t n_tokens = 0;
  bool operator==(const Slice&) const = default;
};

using BatchPlan = std::vector<Slice>;

struct PolicyOptions {
  std::int32_t n_batch = 512;     ///< most tokens of one batch
  double max_step_seconds = 0.1;  ///< a step with running streams should not take longer
  /// Nor longer than so many times a step that only decodes, where chunks so small are worth their
  /// fixed cost.
  double max_step_ratio = 4;
  std::int32_t min_chunk = 4;  ///< prompt tokens that a step takes in any case
};

/// Decoding lanes first, one token each, in order; then prompt chunks up to a budget, in turn among
/// the lanes in prefill. While nobody decodes the budget is a full batch; otherwise it is what the
/// measured speed says fits into the step's time. It is shared evenly, but among no more lanes than
/// get a chunk that is worth its fixed cost; the others have their turn in the next steps.
class BatchPolicy {
 public:
  explicit BatchPolicy(const PolicyOptions& options);

  /// The batches of the next step, in the order in which to run them. Every lane that decodes is in
  /// exactly one; the result is valid until the next call.
  std::span<const BatchPlan> plan(std::span<const LaneWork> work);

  /// Tells how long a batch took.
  void observe(std::int32_t n_decode, std::int32_t n_prompt, double seconds);

  /// Prompt tokens that a step takes while others decode.
  std::int32_t prompt_budget() const noexcept;

 private:
  BatchPlan& open_batch(std::int32_t room);
  double worthwhile() const noexcept;

  const PolicyOptions options_;
  std::vector<BatchPlan> batches_;
  std::vector<LaneWork> prefill_;
  std::size_t n_batches_ = 0;
  std::int32_t open_tokens_ = 0;
  std::int32_t next_lane_ = 0;  // prefill is served from this lane on
  double decode_seconds_ = 0;   // smoothed time of a batch that only decodes; 0 when never seen
  ChunkCost cost_;              // of prompt tokens
};

}  // namespace pronk::inline v0
