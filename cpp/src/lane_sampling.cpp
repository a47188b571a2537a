#include "lane_sampling.h"

#include <algorithm>
#include <string>
#include <utility>

#include "pronk/error.h"

namespace pronk::inline v0 {

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

// Most of the time the model wants what the grammar allows: only where not, the whole vocabulary is
// looked through, and the choice made anew among what is left.
void LaneSampling::choose_allowed(std::span<const float> row) {
  token = sampler.sample(row, std::max(n_top_, 0), n_top_ >= 0 ? &logprob : nullptr);
  if (!grammar->allows(token)) {
    std::vector<float> allowed(row.begin(), row.end());
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
}

}  // namespace pronk::inline v0
