// How one generation is to be sampled and when it ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pronk/api.h"

namespace pronk::inline v0 {

/// Id of a token, in [0, n_vocab).
using Token = std::int32_t;

/// The sampling chain, applied in this order: logit bias, penalties, top-k, top-p, min-p,
/// temperature. The defaults are those of llama.cpp.
struct SamplingParams {
  float temperature = 0.8f;  ///< 0 is greedy; [0, 100]
  std::int32_t top_k = 40;   ///< keep the k most likely; 0 keeps all
  float top_p = 0.95f;       ///< nucleus (Holtzman et al. 2019); (0, 1], 1 is off
  float min_p = 0.05f;       ///< drop tokens below min_p x the best one's probability; [0, 1]
  float repeat_penalty =
      1.0f;  ///< divides positive, multiplies negative logits (CTRL); (0, 100], 1 is off
  float frequency_penalty = 0.0f;  ///< subtracted per occurrence; [-100, 100]
  float presence_penalty = 0.0f;   ///< subtracted once; [-100, 100]
  std::int32_t penalty_last_n =
      64;  ///< tokens that the penalties look back on; -1 is all, 0 is off
  std::optional<std::uint64_t> seed = std::nullopt;  ///< none draws a fresh one from the system
  std::vector<std::pair<Token, float>> logit_bias =
      {};                   ///< added to the logits; -infinity bans a token
  bool ignore_eos = false;  ///< end-of-generation tokens are never sampled
};

/// How one generation is sampled and when it ends.
struct GenerationParams {
  SamplingParams sampling;
  std::optional<std::int32_t> max_tokens;  ///< >= 0; none runs to the end of the context
  std::vector<std::string> stop;  ///< the text ends before the first of these; none may be empty
  std::int32_t logprobs =
      -1;                   ///< alternatives reported per token, 0 for the chosen one alone, -1 off
  bool cache = true;        ///< reuse known prefixes and leave this one for others
  std::string grammar;      ///< GBNF that the text follows, beginning with "root"; empty for none
  std::string json_schema;  ///< JSON text of a schema that the text follows; empty for none
  std::string cache_scope;  ///< prefixes are only shared inside one scope; at most 4096 bytes
};

/// Throws InvalidArgumentError that names the first field out of range. `n_vocab` bounds token ids.
PRONK_API void validate(const GenerationParams& params, std::int32_t n_vocab);

}  // namespace pronk::inline v0
