#include "batch_policy.h"

#include <algorithm>

namespace pronk::inline v0 {
namespace {

// Weight of the newest observation: follows a growing context within tens of steps, shrugs off a
// single hiccup.
constexpr double kSmoothing = 0.1;

// A step with prompt tokens may take at least so many times one without.
constexpr double kLeastShare = 1.5;

void smooth(double& value, double sample) {
  value = value == 0 ? sample : value + kSmoothing * (sample - value);
}

}  // namespace

BatchPolicy::BatchPolicy(const PolicyOptions& options) : options_(options) {}

void BatchPolicy::observe(std::int32_t n_decode, std::int32_t n_prompt, double seconds) {
  if (n_prompt == 0) {
    if (n_decode > 0) smooth(decode_seconds_, seconds);
    return;
  }
  const double base = n_decode > 0 ? decode_seconds_ : 0;
  cost_.observe(n_prompt, std::max(seconds - base, seconds * 0.1));
}

// The largest chunk that fits into the time. It does not get smaller than what is worth its fixed
// cost, unless it would take longer than a step ever should: many small chunks hold the streams up
// for longer than a few large ones.
std::int32_t BatchPolicy::prompt_budget() const noexcept {
  const std::int32_t floor = std::min(options_.min_chunk, options_.n_batch);
  if (!cost_.known()) return floor;
  // A model whose every step takes longer than the limit has prompts to evaluate all the same.
  const double least = kLeastShare * decode_seconds_;
  const double most = std::max(options_.max_step_seconds, least);
  double target = most;
  if (decode_seconds_ > 0) {
    target = std::clamp(options_.max_step_ratio * decode_seconds_, least, most);
  }
  const auto fits = [this](double seconds) {
    return (seconds - decode_seconds_ - cost_.fixed()) / cost_.per_token();
  };
  const double tokens = std::max(fits(target), std::min(worthwhile(), fits(most)));
  if (!(tokens > floor)) return floor;
  return tokens >= options_.n_batch ? options_.n_batch : static_cast<std::int32_t>(tokens);
}

// Tokens of a chunk for which its fixed cost is half of all.
double BatchPolicy::worthwhile() const noexcept {
  return cost_.known() ? cost_.fixed() / cost_.per_token() : 0;
}

// The batch that still has room, or a new one.
BatchPlan& BatchPolicy::open_batch(std::int32_t room) {
  if (n_batches_ == 0 || open_tokens_ + room > options_.n_batch) {
    if (n_batches_ == batches_.size()) batches_.emplace_back();
    batches_[n_batches_++].clear();
    open_tokens_ = 0;
  }
  return batches_[n_batches_ - 1];
}

std::span<const BatchPlan> BatchPolicy::plan(std::span<const LaneWork> work) {
  n_batches_ = 0;
  open_tokens_ = 0;
  prefill_.clear();
  bool decoding = false;
  for (const LaneWork& lane : work) {
    if (lane.alone) continue;
    if (lane.remaining > 1) {
      prefill_.push_back(lane);
      continue;
    }
    open_batch(1).push_back({lane.lane, 1});
    ++open_tokens_;
    decoding = true;
  }

  if (!prefill_.empty()) {
    // In turn: those at or after the mark first.
    const auto mark = std::find_if(prefill_.begin(), prefill_.end(), [this](const LaneWork& lane) {
      return lane.lane >= next_lane_;
    });
    std::rotate(prefill_.begin(), mark == prefill_.end() ? prefill_.begin() : mark, prefill_.end());
    std::int32_t budget = decoding ? prompt_budget() : options_.n_batch;
    auto lanes_left = static_cast<std::int32_t>(prefill_.size());
    if (worthwhile() * lanes_left > budget) {
      lanes_left = std::max(1, static_cast<std::int32_t>(budget / worthwhile()));
    }
    for (const LaneWork& lane : prefill_) {
      // Rounded up, so that a budget smaller than the number of lanes still serves somebody, and
      // the next ones in the next step.
      const std::int32_t share = (budget + lanes_left - 1) / lanes_left;
      lanes_left = std::max(1, lanes_left - 1);
      std::int32_t n = std::min(share, lane.most);
      if (n == 0) break;
      budget -= n;
      next_lane_ = lane.lane + 1;
      while (n > 0) {
        BatchPlan& batch = open_batch(1);
        const std::int32_t fits = std::min(n, options_.n_batch - open_tokens_);
        batch.push_back({lane.lane, fits});
        open_tokens_ += fits;
        n -= fits;
      }
    }
  }

  for (const LaneWork& lane : work) {
    if (!lane.alone) continue;
    open_batch(options_.n_batch).push_back({lane.lane, std::min(lane.most, options_.n_batch)});
    open_tokens_ = options_.n_batch;
  }
  return {batches_.data(), n_batches_};
}

}  // namespace pronk::inline v0
