#include "chat_messages.h"

#include <algorithm>
#include <array>
#include <set>

#include "chat_json.h"
#include "pronk/error.h"

namespace pronk::inline v0 {
namespace {

constexpr std::size_t kMaxMessagesBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxToolsBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxTools = 1024;
constexpr std::size_t kMaxName = 128;
constexpr std::array kRoles = {"system", "developer", "user", "assistant", "tool"};

[[noreturn]] void refuse(const std::string& what, const std::string& got,
                         const std::string& expected, const std::string& advice) {
  throw InvalidArgumentError(what + ": got " + got + ", expected " + expected + ", " + advice);
}

std::string in_quotes(const std::string& text) {
  constexpr std::size_t kLongest = 60;
  return "'" + (text.size() > kLongest ? text.substr(0, kLongest) + "..." : text) + "'";
}

/// The member `key` of an object: null where there is none.
const common_json& member(const common_json& object, const char* key) {
  static const common_json none;
  return object.contains(key) ? object.at(key) : none;
}

std::string string_at(const common_json& object, const char* key, const std::string& where,
                      const char* advice) {
  const common_json& value = member(object, key);
  if (!value.is_string()) {
    refuse(where + "." + key, object.contains(key) ? json_type(value) : "nothing", "a string",
           advice);
  }
  return value.get<std::string>();
}

std::string optional_string(const common_json& object, const char* key, const std::string& where) {
  if (member(object, key).is_null()) return "";
  return string_at(object, key, where, "leave it out or pass text");
}

void read_content(const common_json& message, common_chat_msg& out, const std::string& where,
                  const SpellingGuard& guard) {
  const common_json& content = member(message, "content");
  if (content.is_null()) return;
  if (content.is_string()) {
    out.content = guard.guarded(content.get<std::string>());
    return;
  }
  if (!content.is_array()) {
    refuse(where + ".content", json_type(content), "a string, null or an array of text parts",
           "pass text");
  }
  for (std::size_t i = 0; i < content.size(); ++i) {
    const common_json& part = content.at(i);
    const std::string place = where + ".content[" + std::to_string(i) + "]";
    if (!part.is_object()) refuse(place, json_type(part), "an object", "pass a text part");
    const std::string type = string_at(part, "type", place, "pass {'type': 'text', 'text': ...}");
    if (type != "text") {
      refuse(place + ".type", in_quotes(type), "'text'", "pass text, pronk reads no other parts");
    }
    out.content_parts.push_back(
        {"text", guard.guarded(string_at(part, "text", place, "pass the text"))});
  }
}

common_chat_tool_call read_call(const common_json& call, const std::string& where,
                                const SpellingGuard& guard) {
  constexpr const char* kAdvice = "pass calls as an answer's message has them";
  if (!call.is_object()) refuse(where, json_type(call), "an object", kAdvice);
  if (const std::string type = optional_string(call, "type", where);
      !type.empty() && type != "function") {
    refuse(where + ".type", in_quotes(type), "'function'", kAdvice);
  }
  const common_json& function = member(call, "function");
  if (!function.is_object()) refuse(where + ".function", json_type(function), "an object", kAdvice);
  common_chat_tool_call result;
  result.name = guard.guarded(string_at(function, "name", where + ".function", kAdvice));
  if (result.name.empty()) refuse(where + ".function.name", "''", "a name", kAdvice);
  result.id = guard.guarded(optional_string(call, "id", where));
  const common_json& arguments = member(function, "arguments");
  std::string text = "{}";
  if (arguments.is_string()) {
    text = arguments.get<std::string>();
  } else if (!arguments.is_null()) {
    text = arguments.dump();
  }
  const std::string place = where + ".function.arguments";
  if (!parse_json(place, text, kMaxMessagesBytes).is_object()) {
    refuse(place, in_quotes(text), "a JSON object", kAdvice);
  }
  result.arguments = guard.guarded(text);
  return result;
}

common_chat_msg read_message(const common_json& message, const std::string& where,
                             const SpellingGuard& guard) {
  if (!message.is_object()) refuse(where, json_type(message), "an object", "pass a message");
  common_chat_msg result;
  result.role = string_at(message, "role", where, "pass 'system', 'user', 'assistant' or 'tool'");
  if (std::find(kRoles.begin(), kRoles.end(), result.role) == kRoles.end()) {
    refuse(where + ".role", in_quotes(result.role),
           "'system', 'developer', 'user', 'assistant' or 'tool'", "choose one of them");
  }
  read_content(message, result, where, guard);
  const common_json& calls = member(message, "tool_calls");
  if (!calls.is_null() && !calls.is_array()) {
    refuse(where + ".tool_calls", json_type(calls), "an array", "leave it out or pass calls");
  }
  if (calls.is_array() && !calls.empty() && result.role != "assistant") {
    refuse(where + ".tool_calls", "calls by the role " + in_quotes(result.role),
           "calls by 'assistant'", "put them into the assistant's message");
  }
  if (calls.is_array()) {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      result.tool_calls.push_back(
          read_call(calls.at(i), where + ".tool_calls[" + std::to_string(i) + "]", guard));
    }
  }
  if (result.role != "assistant" && member(message, "content").is_null()) {
    refuse(where + ".content", message.contains("content") ? "null" : "nothing", "text",
           "pass '' to say nothing");
  }
  result.reasoning_content = guard.guarded(optional_string(message, "reasoning_content", where));
  result.tool_name = guard.guarded(optional_string(message, "name", where));
  result.tool_call_id = guard.guarded(optional_string(message, "tool_call_id", where));
  return result;
}

// Descriptions are text for the model, guarded as such; everything else the parser has to find
// again in what the model says.
common_json read_schema(const common_json& value, const std::string& where, bool description,
                        const SpellingGuard& guard) {
  if (value.is_string()) {
    const std::string text = value.get<std::string>();
    if (description) return common_json(guard.guarded(text));
    if (guard.needed(text)) {
      refuse(where, in_quotes(text), "no spelling of a control token of the model",
             "rename it, only descriptions may have them");
    }
    return value;
  }
  if (value.is_array()) {
    common_json result = common_json::array();
    for (std::size_t i = 0; i < value.size(); ++i) {
      result.push_back(
          read_schema(value.at(i), where + "[" + std::to_string(i) + "]", false, guard));
    }
    return result;
  }
  if (!value.is_object()) return value;
  common_json result = common_json::object();
  for (const auto& [key, inner] : value.items()) {
    if (guard.needed(key)) {
      refuse(where, "a member " + in_quotes(key), "no spelling of a control token of the model",
             "rename it");
    }
    result[key] = read_schema(inner, where + "." + key, key == "description", guard);
  }
  return result;
}

common_chat_tool read_tool(const common_json& tool, const std::string& where,
                           const SpellingGuard& guard) {
  constexpr const char* kAdvice =
      "pass {'type': 'function', 'function': {'name': ..., 'description': ..., 'parameters': ...}}";
  if (!tool.is_object()) refuse(where, json_type(tool), "an object", kAdvice);
  if (const std::string type = string_at(tool, "type", where, kAdvice); type != "function") {
    refuse(where + ".type", in_quotes(type), "'function'", kAdvice);
  }
  const common_json& function = member(tool, "function");
  if (!function.is_object()) refuse(where + ".function", json_type(function), "an object", kAdvice);
  common_chat_tool result;
  const std::string place = where + ".function";
  result.name = string_at(function, "name", place, "name the function");
  const bool plain = std::all_of(result.name.begin(), result.name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c == '/' || c == ':';
  });
  if (result.name.empty() || result.name.size() > kMaxName || !plain) {
    refuse(place + ".name", in_quotes(result.name),
           "1 to " + std::to_string(kMaxName) + " of the characters A-Z a-z 0-9 _ - . / :",
           "rename the function");
  }
  result.description = guard.guarded(optional_string(function, "description", place));
  const common_json& parameters = member(function, "parameters");
  if (!parameters.is_null() && !parameters.is_object()) {
    refuse(place + ".parameters", json_type(parameters), "a JSON schema of type object",
           "pass one, or leave it out for a function without parameters");
  }
  result.parameters =
      read_schema(common_chat_tool_parameters(function), place + ".parameters", false, guard)
          .dump();
  return result;
}

}  // namespace

SpellingGuard::SpellingGuard(const std::vector<std::string>& spellings,
                             const std::vector<std::string_view>& texts)
    : by_first_byte_(256) {
  for (const std::string& spelling : spellings) {
    by_first_byte_[static_cast<unsigned char>(spelling[0])].push_back(&spelling);
  }
  for (auto& list : by_first_byte_) {
    std::sort(list.begin(), list.end(),
              [](const auto* a, const auto* b) { return a->size() > b->size(); });
  }
  // U+FDD0 to U+FDEF are characters that stand for nothing, and never will.
  for (char last = '\x90'; last <= '\xaf'; ++last) {
    mark_ = std::string("\xef\xb7") + last;
    if (std::none_of(texts.begin(), texts.end(), [&](std::string_view text) {
          return text.find(mark_) != std::string_view::npos;
        })) {
      return;
    }
  }
  throw InvalidArgumentError(
      "messages: got all of the characters U+FDD0 to U+FDEF, expected one of these that stand for "
      "nothing to be unused, remove them");
}

// Of the longest spelling that begins there; 0 for none.
std::size_t SpellingGuard::length_at(std::string_view text, std::size_t at) const {
  for (const std::string* spelling : by_first_byte_[static_cast<unsigned char>(text[at])]) {
    if (text.substr(at).starts_with(*spelling)) return spelling->size();
  }
  return 0;
}

bool SpellingGuard::needed(std::string_view text) const {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (length_at(text, i) > 0) return true;
  }
  return false;
}

// The mark goes after the first character, at every place where a spelling begins, those within
// another one too.
std::string SpellingGuard::guarded(std::string_view text) const {
  std::string result;
  result.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const bool begins = length_at(text, i) > 0;
    do {
      result += text[i++];
    } while (i < text.size() && (static_cast<unsigned char>(text[i]) & 0xc0) == 0x80);
    if (begins) result += mark_;
  }
  return result;
}

std::vector<common_chat_msg> read_messages(std::string_view text, const SpellingGuard& guard) {
  const common_json json = parse_json("messages", text, kMaxMessagesBytes);
  if (!json.is_array()) {
    refuse("messages", json_type(json), "an array of messages", "pass a list");
  }
  if (json.empty()) refuse("messages", "none", "at least one", "pass what the user says");
  std::vector<common_chat_msg> messages;
  for (std::size_t i = 0; i < json.size(); ++i) {
    messages.push_back(read_message(json.at(i), "messages[" + std::to_string(i) + "]", guard));
  }
  return messages;
}

std::vector<common_chat_tool> read_tools(std::string_view text, const SpellingGuard& guard) {
  std::vector<common_chat_tool> tools;
  if (text.empty()) return tools;
  const common_json json = parse_json("tools", text, kMaxToolsBytes);
  if (!json.is_array()) refuse("tools", json_type(json), "an array of tools", "pass a list");
  if (json.size() > kMaxTools) {
    refuse("tools", std::to_string(json.size()), "at most " + std::to_string(kMaxTools),
           "pass those that this call needs");
  }
  std::set<std::string> names;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const std::string where = "tools[" + std::to_string(i) + "]";
    tools.push_back(read_tool(json.at(i), where, guard));
    if (!names.insert(tools.back().name).second) {
      refuse(where + ".function.name", in_quotes(tools.back().name) + " twice", "different names",
             "rename one of them");
    }
  }
  return tools;
}

}  // namespace pronk::inline v0
