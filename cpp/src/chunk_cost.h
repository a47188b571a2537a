// What prompt tokens add to a step, learned from the steps.
#pragma once

#include <cstdint>

namespace pronk::inline v0 {

/// A line through what chunks of prompts took: so many seconds for having one at all, which may be
/// a graph of its own, and so many for each token. Old chunks count less and less.
class ChunkCost {
 public:
  /// A chunk of `n_tokens` > 0 took `seconds` more than the step would have without.
  void observe(std::int32_t n_tokens, double seconds) noexcept;

  bool known() const noexcept { return weight_ > 0; }
  // Where known:
  double fixed() const noexcept { return fixed_; }          ///< seconds, >= 0
  double per_token() const noexcept { return per_token_; }  ///< seconds, > 0

 private:
  // Sums over the chunks, decayed: of 1, tokens, seconds, tokens^2, tokens x seconds.
  double weight_ = 0, n_ = 0, s_ = 0, nn_ = 0, ns_ = 0;
  double fixed_ = 0;
  double per_token_ = 0;
};

}  // namespace pronk::inline v0
