#include "run.h"

#include <algorithm>

namespace pronk::inline v0 {

Run::Run(std::shared_ptr<GenerationState> generation_in, Sequence* sequence_in, std::int32_t n_ctx,
         const ModelInfo& model, std::span<const Token> eog)
    : generation(std::move(generation_in)),
      sequence(sequence_in),
      tokens(generation->prompt),
      sampling(std::make_shared<LaneSampling>(generation->params, model.n_vocab, eog,
                                              std::move(generation->grammar))),
      text(generation->params.stop) {
  const auto n_prompt = static_cast<std::int32_t>(tokens.size());
  const std::int32_t room = n_ctx - n_prompt;
  n_limit = n_prompt + std::min(room, generation->params.max_tokens.value_or(room));
  tokens.reserve(static_cast<std::size_t>(n_limit));
  sampling->sampler.accept(std::span<const Token>(tokens));
}

}  // namespace pronk::inline v0
