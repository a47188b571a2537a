// A model that is a script: the EngineImpl behind pronk::testing::ScriptedModel.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine_impl.h"
#include "scripted_control.h"
#include "scripted_language.h"

namespace pronk::inline v0 {

class ScriptedEngine final : public EngineImpl {
 public:
  ScriptedEngine(const testing::ScriptedOptions& options,
                 std::shared_ptr<const ScriptedLanguage> language,
                 std::shared_ptr<ScriptedControl> control);

  const ModelInfo& info() const noexcept override { return info_; }
  std::vector<Device> devices() const override;
  std::vector<Token> tokenize(std::string_view text, bool add_special,
                              bool parse_special) const override;
  void append_piece(Token token, bool special, std::string& out) const override;
  bool is_eog(Token token) const override;
  const std::vector<Token>& eog_tokens() const override { return eog_tokens_; }
  std::shared_ptr<ComputeThreads> make_threads(std::int32_t n_threads) override;
  std::unique_ptr<Backend> make_backend(const BackendOptions& options,
                                        std::shared_ptr<ComputeThreads> threads) override;

 private:
  const std::shared_ptr<const ScriptedLanguage> language_;
  const std::shared_ptr<ScriptedControl> control_;
  ModelInfo info_;
  std::vector<Token> eog_tokens_;
};

}  // namespace pronk::inline v0
