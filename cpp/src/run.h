// A generation on its lane, as the decode thread sees it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "generation_state.h"
#include "lane_sampling.h"
#include "pronk/engine.h"
#include "sequence_pool.h"
#include "text_stream.h"

namespace pronk::inline v0 {

/// What has to be evaluated is always the same: the tokens that the sequence does not hold yet.
/// That covers the prompt, the token sampled last, and everything again after a sequence had to be
/// emptied.
struct Run {
  Run(std::shared_ptr<GenerationState> generation_in, Sequence* sequence_in, std::int32_t n_ctx,
      const ModelInfo& model, std::span<const Token> eog);

  std::int32_t remaining() const {
    return static_cast<std::int32_t>(tokens.size() - sequence->tokens.size());
  }
  /// Tokens that the next step may evaluate: others wait for the prefix, or a checkpoint is due.
  std::int32_t until_pause() const {
    std::int32_t most = remaining();
    for (const std::int32_t at : {pause_at, static_cast<std::int32_t>(sequence->checkpoint_at)}) {
      const std::int32_t left = at - static_cast<std::int32_t>(sequence->tokens.size());
      if (left > 0) most = std::min(most, left);
    }
    return most;
  }
  /// Nothing more may be sampled.
  bool full() const { return static_cast<std::int32_t>(tokens.size()) >= n_limit; }

  std::shared_ptr<GenerationState> generation;
  Sequence* sequence;
  std::vector<Token> tokens;  ///< prompt and completion
  std::int32_t n_limit;       ///< most tokens, by max_tokens and by the context
  std::shared_ptr<LaneSampling> sampling;
  bool awaiting = false;  ///< its next token is being chosen elsewhere
  TextStream text;
  std::int32_t n_cached = 0;  ///< tokens of the prompt that were not evaluated
  bool prefilled = false;
  std::int32_t pause_at =
      0;               ///< others wait for the first so many tokens: a step ends there; 0 for none
  bool alone = false;  ///< its last batch failed: it runs in one of its own
  std::int32_t failures = 0;  ///< in a row
};

}  // namespace pronk::inline v0
