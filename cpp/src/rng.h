// Random numbers with a fixed definition: a seed gives the same numbers with every compiler and on
// every platform, which the distributions of <random> do not promise.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace pronk::inline v0 {

/// SplitMix64 (Steele, Lea and Flood 2014).
class SplitMix64 {
 public:
  constexpr explicit SplitMix64(std::uint64_t seed) noexcept : state_(seed) {}

  constexpr std::uint64_t next() noexcept {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

/// xoshiro256++ 1.0 (Blackman and Vigna 2019), its state drawn from the seed by SplitMix64 as they
/// advise.
class Rng {
 public:
  constexpr explicit Rng(std::uint64_t seed) noexcept {
    SplitMix64 mix(seed);
    for (std::uint64_t& word : state_) word = mix.next();
  }

  /// The generator at a given state, not all zero, as its authors publish its outputs.
  static constexpr Rng from_state(const std::array<std::uint64_t, 4>& state) noexcept {
    Rng rng(0);
    rng.state_ = state;
    return rng;
  }

  constexpr std::uint64_t next() noexcept {
    const std::uint64_t result = std::rotl(state_[0] + state_[3], 23) + state_[0];
    const std::uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  /// Uniform in [0, 1), a multiple of 2^-53.
  constexpr double uniform() noexcept { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  std::array<std::uint64_t, 4> state_{};
};

}  // namespace pronk::inline v0
