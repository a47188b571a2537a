// Chooses a token from a row of logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "logit_scan.h"
#include "pronk/completion.h"
#include "pronk/params.h"
#include "rng.h"
#include "token_window.h"

namespace pronk::inline v0 {

/// The state of one generation's sampling: penalties' history, random numbers, scratch space. One
/// thread at a time; different samplers may run at once on rows of the same decode.
///
/// The chain, on logits l: (1) l += bias, end-of-generation tokens are banned under ignore_eos; (2)
/// penalties over the window: l is divided (l > 0) or multiplied by repeat_penalty, then l -= count
/// x frequency_penalty + presence_penalty; (3) the top_k largest stay; (4) of these the smallest
/// set of largest stays whose probabilities, a softmax over what top-k left, reach top_p; (5) those
/// below min_p x the largest probability go; (6) a softmax of l / temperature over what is left is
/// drawn from. Cuts break ties in favour of the lower id. Temperature 0 takes the largest l after
/// (2), the lowest id of equal ones, and draws nothing.
class Sampler {
 public:
  /// `params` have passed validate(). `eog` are the model's end-of-generation tokens, banned under
  /// ignore_eos.
  Sampler(const SamplingParams& params, std::int32_t n_vocab, std::span<const Token> eog);

  /// `logits` has n_vocab entries; NaN counts as -infinity. With `logprobs` the chosen token's
  /// entry is filled in, with up to `n_top` possible alternatives; probabilities are those after
  /// (1). Throws BackendError when no token has a finite logit or one has +infinity.
  Token sample(std::span<const float> logits, std::int32_t n_top, TokenLogprob* logprobs);
  /// How many of the likeliest tokens matter, where only the logits as they are decide which these
  /// are; 0 where all matter.
  std::size_t n_likeliest() const noexcept;
  /// The logit of `token` under the bias.
  float biased(std::span<const float> logits, Token token) const;
  /// Takes a token into the history that penalties look at: prompt tokens first, then each chosen
  /// one.
  void accept(Token token);
  /// The same for many, such as a prompt: cheap however long it is.
  void accept(std::span<const Token> tokens);

  std::uint64_t seed() const noexcept { return seed_; }

 private:
  bool valid(Token token) const noexcept { return token >= 0 && token < n_vocab_; }
  void scan(std::span<const float> logits, std::span<const TokenWindow::Count> counts);
  float penalised(float logit, std::int32_t count) const noexcept;
  Token draw();
  double weigh(float inverse_temperature);
  void gather_nucleus(double target, float threshold);
  void cut_top_p(double target);

  float temperature_;
  std::int32_t top_k_;
  float top_p_;
  float min_p_;
  float repeat_penalty_;
  float frequency_penalty_;
  float presence_penalty_;
  bool penalties_;  // they can change something
  std::int32_t n_vocab_;
  std::uint64_t seed_;
  Rng rng_;
  TokenWindow window_;
  std::vector<LogitScan::Override> bias_;  // in order of token, each once

  // Scratch, reused from token to token.
  std::vector<LogitScan::Override> overrides_;
  LogitScan scan_;
  std::vector<Candidate> candidates_;  // in order of id
  std::vector<Candidate> selection_;
};

}  // namespace pronk::inline v0
