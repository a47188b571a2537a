#include "pronk/engine.h"

#include <utility>

#include "chat_render.h"
#include "engine_impl.h"
#include "llama_engine.h"
#include "pool.h"
#include "pool_plan.h"
#include "pronk/error.h"
#include "utf8.h"

namespace pronk::inline v0 {
namespace {

// llama.cpp needs some 20 bytes of memory for each, and counts tokens in 32 bits.
constexpr std::size_t kMaxTextBytes = std::size_t{64} << 20;

}  // namespace

std::string EngineImpl::detokenize(const std::vector<Token>& tokens, bool special) const {
  std::string text;
  for (const Token token : tokens) append_piece(token, special, text);
  return text;
}

std::shared_ptr<InferenceEngine> InferenceEngine::load(const std::string& path,
                                                       const LoadOptions& options) {
  return std::make_shared<InferenceEngine>(load_llama_engine(path, options));
}

InferenceEngine::InferenceEngine(std::shared_ptr<EngineImpl> impl) : impl_(std::move(impl)) {
  if (!impl_)
    throw InvalidArgumentError(
        "engine: got no implementation, expected one, use InferenceEngine::load");
}

InferenceEngine::~InferenceEngine() = default;

const ModelInfo& InferenceEngine::info() const noexcept { return impl_->info(); }

std::vector<Device> InferenceEngine::devices() const { return impl_->devices(); }

std::vector<Token> InferenceEngine::tokenize(std::string_view text, bool add_special,
                                             bool parse_special) const {
  if (text.size() > kMaxTextBytes) {
    throw InvalidArgumentError("text: got " + std::to_string(text.size()) +
                               " bytes, expected at most " + std::to_string(kMaxTextBytes) +
                               ", pass it in parts");
  }
  if (const std::size_t at = find_invalid_utf8(text); at != std::string_view::npos) {
    throw InvalidArgumentError("text: got invalid UTF-8 at byte " + std::to_string(at) +
                               ", expected UTF-8, decode it first");
  }
  return impl_->tokenize(text, add_special, parse_special);
}

std::string InferenceEngine::detokenize(const std::vector<Token>& tokens, bool special) const {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= info().n_vocab) {
      throw InvalidArgumentError("tokens[" + std::to_string(i) + "]: got " +
                                 std::to_string(tokens[i]) + ", expected 0 to " +
                                 std::to_string(info().n_vocab - 1));
    }
  }
  return impl_->detokenize(tokens, special);
}

std::string InferenceEngine::render_chat(std::string_view messages,
                                         const ChatParams& params) const {
  return pronk::render_chat(*this, messages, params).text;
}

std::vector<Token> InferenceEngine::tokenize_chat(std::string_view messages,
                                                  const ChatParams& params) const {
  return pronk::render_chat(*this, messages, params).prompt;
}

MemoryEstimate InferenceEngine::estimate_memory(std::int32_t max_concurrent,
                                                const PoolOptions& options) const {
  if (max_concurrent != kAuto) check_concurrent(max_concurrent);
  return estimate_pool(*this, options, max_concurrent);
}

bool InferenceEngine::is_eog(Token token) const { return impl_->is_eog(token); }

}  // namespace pronk::inline v0
