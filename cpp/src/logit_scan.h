// The passes over a row of logits that sampling needs, without ever copying or sorting the row.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "pronk/params.h"

namespace pronk::inline v0 {

inline constexpr float kExpUnderflow = -87.0f;  // e^x is still a normal number above

/// e^x for x <= 0 with an error of about one unit in the last place; 0 below -87, for -infinity and
/// for NaN. Branch free, so that loops over it become vector code.
inline float exp_of_negative(float x) noexcept {
  // 2^n x e^r with |r| <= ln(2) / 2, e^r by its series; the first term left out is below 6e-9.
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0.693359375f;  // exact in few bits, so that n x kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4f;
  // Adding it rounds to an integer, which the low bits of the sum then hold.
  constexpr float kRound = 0x1.8p23f;
  const float shifted = x * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float e = 1.0f / 5040;
  e = e * r + 1.0f / 720;
  e = e * r + 1.0f / 120;
  e = e * r + 1.0f / 24;
  e = e * r + 1.0f / 6;
  e = e * r + 0.5f;
  e = e * r + 1.0f;
  e = e * r + 1.0f;
  const std::uint32_t exponent = std::bit_cast<std::uint32_t>(shifted) << 23;
  const std::uint32_t result = std::bit_cast<std::uint32_t>(e) + exponent;
  // What is out of range, or NaN, has given nonsense up to here. A mask rather than a choice: GCC
  // turns a choice into a jump around the work above.
  const std::uint32_t normal = 0u - static_cast<std::uint32_t>(x > kExpUnderflow);
  return std::bit_cast<float>(result & normal);
}

struct Candidate {
  Token token = 0;
  float logit = 0;
  float weight = 0;  ///< scratch of whoever chooses among candidates
};

/// The order of likelihood: ties go to the lower id.
inline bool more_likely(const Candidate& a, const Candidate& b) noexcept {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

/// A row of logits in which a few entries are replaced. NaN counts as -infinity. The row is read in
/// blocks whose maxima are kept: most questions then touch a few blocks only. Scratch memory is
/// reused from row to row; it is a few hundredths of the row's.
class LogitScan {
 public:
  /// What an entry of the row is to be taken for.
  struct Override {
    Token token = 0;
    float logit = 0;
  };

  /// One pass over the row. Both spans are kept and must outlive the questions. `overrides` are in
  /// order of token, each token once, all in range.
  void reset(std::span<const float> logits, std::span<const Override> overrides);

  /// -infinity where no token is possible.
  float max() const noexcept { return max_; }

  // All of these need a finite max().

  /// The likeliest token.
  Token argmax();
  /// The `k` > 0 likeliest tokens, or fewer where fewer are possible, in order of id.
  void top(std::size_t k, std::vector<Candidate>& out);
  /// All possible tokens with at least this logit, in order of id.
  void at_least(float threshold, std::vector<Candidate>& out);
  /// The sum of e^((logit - max) x inverse_temperature) over the row.
  double mass(float inverse_temperature);
  /// Where the running sum of the last mass() exceeds `target`; the last possible token if rounding
  /// keeps it below.
  Token pick(double target);

 private:
  static constexpr std::size_t kBlock = 128;

  struct Block {
    const float* values;
    std::size_t first;
    std::size_t size;
  };

  Block block(std::size_t index) noexcept;

  std::span<const float> logits_;
  std::span<const Override> overrides_;
  float max_ = -std::numeric_limits<float>::infinity();
  float inverse_temperature_ = 1;
  std::vector<float> maxima_;            // of each block
  std::vector<double> masses_;           // of each block
  std::vector<float> order_;             // scratch of top()
  std::vector<Candidate> selection_;     // scratch of top()
  std::array<float, kBlock> patched_{};  // a block with its overrides
  std::size_t cursor_ = 0;               // an override that starts the search of the next block
};

}  // namespace pronk::inline v0
