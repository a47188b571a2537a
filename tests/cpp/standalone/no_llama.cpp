// Takes the place of the files that need llama.cpp.
#include "chat_render.h"
#include "grammar.h"
#include "llama_engine.h"
#include "pronk/error.h"

namespace pronk::inline v0 {

std::shared_ptr<EngineImpl> load_llama_engine(const std::string& path, const LoadOptions&) {
  throw ModelLoadError("model: got '" + path +
                       "' in a build without llama.cpp, expected a scripted model");
}

std::unique_ptr<Grammar> make_grammar(const InferenceEngine&, const GrammarSpec&,
                                      const std::vector<Token>&) {
  throw GrammarError("grammar: got one in a build without llama.cpp, expected none, leave it out");
}

std::string grammar_of_schema(std::string_view) {
  throw GrammarError(
      "json_schema: got one in a build without llama.cpp, expected none, leave it out");
}

RenderedChat render_chat(const InferenceEngine&, std::string_view, const ChatParams&,
                         const std::string&) {
  throw InvalidArgumentError(
      "chat: got one in a build without llama.cpp, expected a prompt, call generate()");
}

}  // namespace pronk::inline v0
