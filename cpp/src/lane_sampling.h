// How one lane chooses its tokens.
#pragma once

#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "grammar.h"
#include "pronk/completion.h"
#include "sampler.h"

namespace pronk::inline v0 {

/// Sampling, with a grammar where there is one. What follows a grammar takes as long as the grammar
/// makes it, so it is done beside the decode thread; that leaves it alone until it is done.
struct LaneSampling {
  LaneSampling(const GenerationParams& params, std::int32_t n_vocab, std::span<const Token> eog,
               std::unique_ptr<Grammar> grammar_in);

  /// Chooses `token` by `row`, or finds `error`. Different lanes may do so at once.
  void choose(std::span<const float> row) noexcept;
  /// The same by `own_row`, at leisure.
  void choose_own() noexcept { choose(own_row); }

  Sampler sampler;
  const std::unique_ptr<Grammar> grammar;  ///< none: everything is allowed
  std::vector<float> own_row;              ///< a copy of the logits, which outlives the next decode

  Token token = 0;
  std::vector<Token> forced;  ///< what has to follow it, by the grammar
  bool finished = false;      ///< with this token the text is complete, by its grammar
  TokenLogprob logprob;
  std::exception_ptr error;
  bool bad_row = false;  ///< the error is the logits', so that what they come from is of no use
  bool chosen = false;   ///< choose_own() is done; guarded by the mutex of the decode loop's inbox

 private:
  void choose_allowed(std::span<const float> row);
  bool mask_likeliest(std::span<const float> row, std::vector<float>& allowed) const;

  const std::int32_t n_top_;  // -1: no log probabilities
};

}  // namespace pronk::inline v0
