// Takes the place of the files that need llama.cpp.
#include "chat_render.h"
#include "llama_engine.h"
#include "pronk/error.h"

namespace pronk::inline v0 {

std::shared_ptr<EngineImpl> load_llama_engine(const std::string& path, const LoadOptions&) {
  throw ModelLoadError("model: got '" + path +
                       "' in a build without llama.cpp, expected a scripted model");
}

RenderedChat render_chat(const InferenceEngine&, std::string_view, const ChatParams&) {
  throw InvalidArgumentError(
      "chat: got one in a build without llama.cpp, expected a prompt, call generate()");
}

}  // namespace pronk::inline v0
