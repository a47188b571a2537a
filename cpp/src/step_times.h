// How long the latest steps took.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace pronk::inline v0 {

/// A ring of the last 512 durations, in seconds.
class StepTimes {
 public:
  void add(double seconds) {
    ring_[next_++ % ring_.size()] = seconds;
    size_ = std::min(size_ + 1, ring_.size());
  }

  /// The given quantiles, each in [0, 1]; zeros when nothing was added.
  template <std::size_t N>
  std::array<double, N> quantiles(const std::array<double, N>& at) const {
    std::array<double, N> out{};
    if (size_ == 0) return out;
    std::vector<double> sorted(ring_.begin(), ring_.begin() + static_cast<std::ptrdiff_t>(size_));
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 0; i < N; ++i) {
      out[i] = sorted[static_cast<std::size_t>(at[i] * static_cast<double>(size_ - 1) + 0.5)];
    }
    return out;
  }

 private:
  std::array<double, 512> ring_{};
  std::size_t next_ = 0;
  std::size_t size_ = 0;
};

}  // namespace pronk::inline v0
