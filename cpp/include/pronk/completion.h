// What a generation leaves behind.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pronk/chat.h"
#include "pronk/params.h"

namespace pronk::inline v0 {

/// kStop: the model ended it, or a stop string. kLength: max_tokens, or the end of the context.
enum class FinishReason : int { kStop = 0, kLength, kToolCalls, kCancelled };

/// Tokens of one completion.
struct Usage {
  std::int32_t prompt_tokens = 0;      ///< all tokens of the prompt
  std::int32_t cached_tokens = 0;      ///< of these, not evaluated: reused from a known prefix
  std::int32_t completion_tokens = 0;  ///< sampled, the end-of-generation token not counted
};

/// Seconds on the scheduler's clock.
struct Timings {
  double queued = 0;       ///< from the call to the first step that worked on it
  double prefill = 0;      ///< from there to the end of the prompt
  double first_token = 0;  ///< from the call to the first token
  double decode = 0;       ///< from the first token to the last
};

/// How likely a sampled token was.
struct TokenLogprob {
  Token token = 0;
  float logprob = 0;  ///< natural logarithm of the probability before sampling, after logit bias
  std::vector<std::pair<Token, float>> top;  ///< most likely first
};

/// What a generation produced.
struct Completion {
  std::string text;  ///< whole UTF-8, up to a stop string if one was met; of a chat, the content
  std::vector<Token> tokens;  ///< as sampled
  FinishReason finish_reason = FinishReason::kStop;
  Usage usage;
  Timings timings;
  std::vector<TokenLogprob> logprobs;  ///< one per token; empty where none were asked for
  std::optional<ChatMessage> message;  ///< of a chat
  bool is_json = false;                ///< a JSON schema was asked for
};

}  // namespace pronk::inline v0
