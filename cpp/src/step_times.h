// How long the latest steps took, and how much they did.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pronk::inline v0 {

/// A ring of the last 512 steps: seconds, and tokens evaluated.
class StepTimes {
 public:
  void add(double seconds, std::int32_t tokens) {
    const std::size_t at = next_++ % seconds_.size();
    seconds_[at] = seconds;
    tokens_[at] = tokens;
    size_ = std::min(size_ + 1, seconds_.size());
  }

  /// The given quantiles of the seconds, each in [0, 1]; zeros when nothing was added.
  template <std::size_t N>
  std::array<double, N> quantiles(const std::array<double, N>& at) const {
    std::array<double, N> out{};
    if (size_ == 0) return out;
    std::vector<double> sorted(seconds_.begin(),
                               seconds_.begin() + static_cast<std::ptrdiff_t>(size_));
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 0; i < N; ++i) {
      out[i] = sorted[static_cast<std::size_t>(at[i] * static_cast<double>(size_ - 1) + 0.5)];
    }
    return out;
  }

  double mean_tokens() const {
    if (size_ == 0) return 0;
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < size_; ++i) sum += tokens_[i];
    return static_cast<double>(sum) / static_cast<double>(size_);
  }
  std::int32_t most_tokens() const { return *std::max_element(tokens_.begin(), tokens_.end()); }

 private:
  std::array<double, 512> seconds_{};
  std::array<std::int32_t, 512> tokens_{};
  std::size_t next_ = 0;
  std::size_t size_ = 0;
};

}  // namespace pronk::inline v0
