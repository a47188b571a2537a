#include "chunk_cost.h"

#include <algorithm>

namespace pronk::inline v0 {
namespace {

// Per chunk. Long enough for the few large chunks of a quiet moment to be remembered in a busy one,
// which sees small ones only.
constexpr double kDecay = 0.97;
// Sizes that differ by less than such a part of their mean do not show which part is fixed.
constexpr double kSpread = 0.1;
// A line this much flatter than the mean cost of a token, or more, is noise.
constexpr double kFlattest = 0.1;
// A clock that stands still makes nothing free.
constexpr double kLeast = 1e-12;

}  // namespace

void ChunkCost::observe(std::int32_t n_tokens, double seconds) noexcept {
  const double n = n_tokens;
  const auto add = [](double& sum, double value) { sum = kDecay * sum + value; };
  add(weight_, 1);
  add(n_, n);
  add(s_, seconds);
  add(nn_, n * n);
  add(ns_, n * seconds);

  const double mean_n = n_ / weight_;
  const double mean_s = std::max(s_ / weight_, kLeast);
  const double variance = nn_ / weight_ - mean_n * mean_n;
  const double mean_cost = mean_s / mean_n;
  if (variance > kSpread * kSpread * mean_n * mean_n) {
    const double slope = (ns_ / weight_ - mean_n * mean_s) / variance;
    per_token_ = std::clamp(slope, kFlattest * mean_cost, mean_cost);
  } else {
    // Half and half: where a larger chunk fits by that, it is tried, and shows.
    per_token_ = mean_cost / 2;
  }
  fixed_ = std::max(0.0, mean_s - per_token_ * mean_n);
}

}  // namespace pronk::inline v0
