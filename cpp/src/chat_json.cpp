#include "chat_json.h"

#include "json_depth.h"
#include "pronk/error.h"

namespace pronk::inline v0 {
namespace {

constexpr std::size_t kMaxDepth = 128;

}  // namespace

common_json parse_json(const std::string& what, std::string_view text, std::size_t max_bytes) {
  if (text.size() > max_bytes) {
    throw InvalidArgumentError(what + ": got " + std::to_string(text.size()) +
                               " bytes of JSON, expected at most " + std::to_string(max_bytes) +
                               ", shorten it");
  }
  if (const std::size_t depth = json_depth(text); depth > kMaxDepth) {
    throw InvalidArgumentError(what + ": got values nested " + std::to_string(depth) +
                               " deep, expected at most " + std::to_string(kMaxDepth) +
                               ", flatten them");
  }
  try {
    return common_json::parse(std::string(text));
  } catch (const common_json_error& error) {
    throw InvalidArgumentError(what + ": got text that is no JSON (" + error.what() +
                               "), expected JSON, write it with a JSON library");
  }
}

const char* json_type(const common_json& value) {
  if (value.is_null()) return "null";
  if (value.is_boolean()) return "a boolean";
  if (value.is_number()) return "a number";
  if (value.is_string()) return "a string";
  if (value.is_array()) return "an array";
  return "an object";
}

}  // namespace pronk::inline v0
