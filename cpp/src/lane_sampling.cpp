#include "lane_sampling.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "pronk/error.h"

namespace pronk::inline v0 {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
// Tokens that are looked through before all of them are.
constexpr std::ptrdiff_t kLikeliest = 1024;
// Part of the probability that may be left out.
constexpr double kNegligible = 1e-3;

}  // namespace

LaneSampling::LaneSampling(const GenerationParams& params, std::int32_t n_vocab,
                           std::span<const Token> eog, std::unique_ptr<Grammar> grammar_in)
    : sampler(params.sampling, n_vocab, eog),
      grammar(std::move(grammar_in)),
      n_top_(params.logprobs) {}

void LaneSampling::choose(std::span<const float> row) noexcept {
  error = nullptr;
  bad_row = true;
  try {
    if (grammar) {
      choose_allowed(row);
    } else {
      token = sampler.sample(row, std::max(n_top_, 0), n_top_ >= 0 ? &logprob : nullptr);
    }
  } catch (const GrammarError&) {
    error = std::current_exception();
    bad_row = false;
  } catch (const Error&) {
    error = std::current_exception();
  } catch (const std::exception& e) {
    error = std::make_exception_ptr(BackendError("sampling: got " + std::string(e.what()) +
                                                 ", expected a token, retry the generation"));
  }
}

// Looking through the likeliest tokens is enough where more of them are allowed than the sampler
// looks at, or where those beyond are too unlikely to matter beside them. False where it is not.
bool LaneSampling::mask_likeliest(std::span<const float> row, std::vector<float>& allowed) const {
  const std::size_t n_needed = sampler.n_likeliest();
  if (n_needed == 0 || row.size() <= 2 * kLikeliest) return false;
  std::vector<float> ranked(row.begin(), row.end());
  for (float& logit : ranked) {
    if (std::isnan(logit)) logit = kMinusInfinity;
  }
  const auto last = ranked.begin() + kLikeliest;
  std::nth_element(ranked.begin(), last, ranked.end(), std::greater<>());
  const float bound = *last;
  allowed.assign(row.size(), kMinusInfinity);
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (row[i] > bound) allowed[i] = row[i];
  }
  const std::size_t n_allowed = grammar->mask(allowed);
  if (n_allowed >= n_needed) return true;
  const float best = *std::max_element(allowed.begin(), allowed.end());
  return static_cast<double>(n_needed) * std::exp(double{bound} - double{best}) < kNegligible;
}

// Most of the time the model wants what the grammar allows: only where not, the whole vocabulary is
// looked through, and the choice made anew among what is left.
void LaneSampling::choose_allowed(std::span<const float> row) {
  token = sampler.sample(row, std::max(n_top_, 0), n_top_ >= 0 ? &logprob : nullptr);
  if (!grammar->allows(token)) {
    std::vector<float> allowed;
    if (!mask_likeliest(row, allowed)) allowed.assign(row.begin(), row.end());
    if (grammar->mask(allowed) == 0) {
      throw GrammarError(
          "grammar: got no token of the model that can go on, expected one, allow text that its "
          "vocabulary can spell");
    }
    const Token refused = token;
    token = sampler.sample(allowed, 0, nullptr);
    if (n_top_ >= 0) {
      logprob.logprob += sampler.biased(row, token) - sampler.biased(row, refused);
      logprob.token = token;
    }
  }
  grammar->accept(token);
  finished = grammar->finished();
  // Log probabilities need the logits of every token.
  forced = finished || n_top_ >= 0 ? std::vector<Token>() : grammar->take_forced();
}

}  // namespace pronk::inline v0
