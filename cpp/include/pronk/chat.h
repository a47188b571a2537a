// Chats: messages and tools as the model's template writes them, and what comes back, parsed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pronk/api.h"

namespace pronk::inline v0 {

/// How a chat is rendered and its answer read. JSON is UTF-8 text, in the form of OpenAI's chat
/// completions.
struct ChatParams {
  std::string tools;                 ///< an array of function tools; empty for none
  std::string tool_choice = "auto";  ///< "auto", "none", "required"; see tool_name for one tool
  std::string tool_name;             ///< the tool that has to be called; empty leaves the choice
  /// Whether an answer may have more than one call; none is what the template is made for.
  std::optional<bool> parallel_tool_calls;
  std::string chat_template;    ///< Jinja instead of the model's own; empty takes the model's
  std::string template_kwargs;  ///< an object: more variables for the template; empty for none
};

struct ToolCall {
  std::string id;         ///< the model's own, else nine random letters and digits
  std::string name;       ///< of the function
  std::string arguments;  ///< a JSON object, as the model wrote it

  bool operator==(const ToolCall&) const = default;
};

/// What an assistant said.
struct ChatMessage {
  std::string content;
  std::string reasoning_content;  ///< thoughts that the model's format keeps apart
  std::vector<ToolCall> tool_calls;

  bool operator==(const ChatMessage&) const = default;
};

struct ToolCallDelta {
  std::int32_t index = 0;  ///< which call of the message, from 0
  std::string id;          ///< whole, with the first delta of a call; empty afterwards
  std::string name;        ///< likewise
  std::string arguments;   ///< what came to them

  bool operator==(const ToolCallDelta&) const = default;
};

/// What came to a message. Deltas only ever add: joined in order they are the message, and besides
/// at most the beginning of a call that was never finished.
struct ChatDelta {
  std::string content;
  std::string reasoning_content;
  std::vector<ToolCallDelta> tool_calls;

  bool empty() const { return content.empty() && reasoning_content.empty() && tool_calls.empty(); }
};

}  // namespace pronk::inline v0
