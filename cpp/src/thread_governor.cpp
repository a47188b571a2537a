#include "thread_governor.h"

#include <algorithm>
#include <cmath>

namespace pronk::inline v0 {
namespace {

// Batches of the same size before the first trial: the first ones of a context warm it up.
constexpr std::int32_t kWarmUp = 4;
// Pairs of batches in a trial.
constexpr std::int32_t kPairs = 3;
// The other number must be so much faster to be worth a change.
constexpr double kGain = 0.95;
// Seconds of batches between trials: the first pause and the longest.
constexpr double kMinPause = 0.5;
constexpr double kMaxPause = 60;
// A number that is so many times slower in its first batch is not given another, where batches take
// about the same time each, and where they do not.
constexpr double kHopeless = 1.25;
constexpr double kHopelessUnsteady = 2.5;
// Batches whose times differ by such a part of it are steady.
constexpr double kSteady = 0.2;
// A batch that takes so many times the usual is slow; so many slow ones call for a trial at once.
constexpr double kSlow = 2.5;
constexpr std::int32_t kSlowBatches = 2;
constexpr double kSmoothing = 0.1;

}  // namespace

ThreadGovernor::ThreadGovernor(std::int32_t most)
    : most_(most), chosen_(most), next_trial_(kMinPause) {}

void ThreadGovernor::observe(std::int32_t n_tokens, double seconds) {
  if (most_ == 1) return;
  now_ += seconds;
  if (trying_) {
    compare(n_tokens, seconds);
  } else {
    watch(n_tokens, seconds);
  }
}

void ThreadGovernor::watch(std::int32_t n_tokens, double seconds) {
  if (n_tokens != shape_) {
    shape_ = n_tokens;
    n_watched_ = 0;
    n_slow_ = 0;
    usual_ = spread_ = seconds;
  }
  ++n_watched_;
  if (seconds > kSlow * usual_) {
    ++n_slow_;
  } else {
    spread_ += kSmoothing * (std::abs(seconds - usual_) - spread_);
    usual_ += kSmoothing * (seconds - usual_);
  }
  if (n_slow_ >= kSlowBatches && chosen_ > 1) {
    // Something else runs on the machine since a moment ago.
    pause_ = kMinPause;
    upwards_ = true;  // so that the trial goes down
    begin_trial();
  } else if (now_ >= next_trial_ && n_watched_ >= kWarmUp) {
    begin_trial();
  }
}

void ThreadGovernor::begin_trial() {
  // Up and down in turn, where there is room.
  upwards_ = chosen_ == 1 || (chosen_ < most_ && !upwards_);
  const std::int32_t stride = std::max(1, chosen_ / 4);
  other_ = upwards_ ? std::min(most_, chosen_ + stride) : std::max(1, chosen_ - stride);
  trying_ = true;
  odd_ = false;
  n_tried_ = 0;
  chosen_seconds_ = other_seconds_ = 0;
}

void ThreadGovernor::compare(std::int32_t n_tokens, double seconds) {
  if (n_tokens != shape_) {
    // The work changed under the trial: its times say nothing.
    trying_ = false;
    next_trial_ = now_ + kMinPause;
    return;
  }
  (odd_ ? other_seconds_ : chosen_seconds_) += seconds;
  odd_ = !odd_;
  ++n_tried_;
  const double limit = spread_ < kSteady * usual_ ? kHopeless : kHopelessUnsteady;
  const bool hopeless = n_tried_ == 2 && other_seconds_ > limit * chosen_seconds_;
  if (hopeless || n_tried_ == 2 * kPairs) end_trial(other_seconds_ < kGain * chosen_seconds_);
}

void ThreadGovernor::end_trial(bool faster) {
  trying_ = false;
  n_watched_ = 0;
  n_slow_ = 0;
  if (faster) {
    chosen_ = other_;
    upwards_ = !upwards_;  // the next trial goes on in the same direction
    pause_ = 0;
  } else {
    pause_ = std::clamp(2 * pause_, kMinPause, kMaxPause);
  }
  usual_ = 0;
  shape_ = 0;
  next_trial_ = now_ + pause_;
}

}  // namespace pronk::inline v0
