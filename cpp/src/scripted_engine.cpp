#include "scripted_engine.h"

#include <algorithm>
#include <utility>

#include "default_template.h"
#include "pronk/error.h"
#include "scripted_backend.h"

namespace pronk::inline v0 {

ScriptedEngine::ScriptedEngine(const testing::ScriptedOptions& options,
                               std::shared_ptr<const ScriptedLanguage> language,
                               std::shared_ptr<ScriptedControl> control)
    : language_(std::move(language)), control_(std::move(control)) {
  if (options.n_ctx_train < 1) {
    throw InvalidArgumentError("n_ctx_train: got " + std::to_string(options.n_ctx_train) +
                               ", expected 1 or more");
  }
  info_.path = "scripted";
  info_.architecture = "scripted";
  info_.description = "scripted model for tests";
  info_.n_vocab = language_->n_vocab();
  info_.n_ctx_train = options.n_ctx_train;
  info_.n_swa = options.n_swa;
  info_.memory_kind = options.memory_kind;
  info_.bos = language_->bos();
  info_.eos = language_->eos();
  info_.eot = language_->eot();
  info_.add_bos = options.add_bos;
  info_.chat_template = options.chat_template.value_or(kChatMlWithTools);
  info_.metadata = {{"general.architecture", "scripted"}};
  eog_tokens_ = {info_.eos, info_.eot};
}

std::vector<Device> ScriptedEngine::devices() const {
  Device device;
  device.name = "scripted";
  device.description = "no device: answers are computed from a script";
  device.kind = "cpu";
  return {device};
}

std::vector<Token> ScriptedEngine::tokenize(std::string_view text, bool add_special,
                                            bool parse_special) const {
  return language_->tokenize(text, add_special, parse_special);
}

void ScriptedEngine::append_piece(Token token, bool special, std::string& out) const {
  language_->append_piece(token, special, out);
}

bool ScriptedEngine::is_eog(Token token) const {
  return std::find(eog_tokens_.begin(), eog_tokens_.end(), token) != eog_tokens_.end();
}

std::shared_ptr<ComputeThreads> ScriptedEngine::make_threads(std::int32_t) { return nullptr; }

std::unique_ptr<Backend> ScriptedEngine::make_backend(const BackendOptions& options,
                                                      std::shared_ptr<ComputeThreads>) {
  control_->on_make_backend();
  return std::make_unique<ScriptedBackend>(language_, control_, options);
}

}  // namespace pronk::inline v0
