// The chat template of models that bring none, or none with tools.
#pragma once

namespace pronk::inline v0 {

/// ChatML, with the tools in the system message as Hermes models know them.
extern const char* const kChatMlWithTools;

}  // namespace pronk::inline v0
