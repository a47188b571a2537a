// From messages to a prompt, and to what reads the answer.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammar.h"
#include "pronk/chat.h"
#include "pronk/engine.h"
#include "reply_stream.h"

namespace pronk::inline v0 {

/// A chat, ready to be generated.
struct RenderedChat {
  std::string text;                ///< the prompt, for people
  std::vector<Token> prompt;       ///< the prompt
  std::vector<Token> shown;        ///< control tokens that the parser has to see; ascending
  std::vector<std::string> stops;  ///< the format's own
  std::unique_ptr<ReplyParser> parser;
  std::vector<std::string> tool_names;
  GrammarSpec grammar;  ///< that the answer follows; empty: none
};

/// `messages` is a JSON array in the form of OpenAI's chat completions, `json_schema` that of the
/// answer, or empty. Blocks for milliseconds. Throws InvalidArgumentError, GrammarError,
/// InsufficientMemoryError.
RenderedChat render_chat(const InferenceEngine& engine, std::string_view messages,
                         const ChatParams& params, const std::string& json_schema = {});

}  // namespace pronk::inline v0
