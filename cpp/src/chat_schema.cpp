// JSON schemas as grammars.
#include "chat_schema.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <string>

#include "big_stack.h"
#include "chat_json.h"
#include "chat_schema_rewrite.h"
#include "grammar.h"
#include "json-schema-to-grammar.h"
#include "pronk/error.h"
#include "utf8.h"

namespace {

// What the conversion on this thread could not express.
thread_local std::string conversion_note;

}  // namespace

// See cmake/quiet_conversion.h.
__attribute__((format(printf, 2, 3))) int pronk_note_conversion(std::FILE* file, const char* format,
                                                                ...);
int pronk_note_conversion(std::FILE*, const char* format, ...) {
  char text[400];
  va_list arguments;
  va_start(arguments, format);
  const int n = std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  conversion_note += text;
  return n;
}

namespace pronk::inline v0 {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 18;
// The converter takes time with the cube of the optional ones.
constexpr std::size_t kMaxProperties = 256;
constexpr std::size_t kMaxGrammarBytes = std::size_t{1} << 20;
constexpr std::size_t kStack = std::size_t{64} << 20;

[[noreturn]] void refuse(const std::string& got, const std::string& expected,
                         const std::string& advice) {
  throw GrammarError("json_schema: got " + got + ", expected " + expected + ", " + advice);
}

[[noreturn]] void refuse_note(std::string note) {
  std::replace(note.begin(), note.end(), '\n', ' ');
  std::string text;
  Utf8Decoder decoder;
  decoder.push(note.substr(0, 500), text);
  refuse("'" + text + "' from its conversion", "what a grammar can express", "simplify it");
}

void check_sizes(const common_json& value, const std::string& what) {
  if (value.is_object()) {
    if (value.size() > kMaxProperties) {
      throw GrammarError(what + ": got " + std::to_string(value.size()) +
                         " members in one object, expected at most " +
                         std::to_string(kMaxProperties) + ", split it");
    }
    for (const auto& [key, inner] : value.items()) check_sizes(inner, what);
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) check_sizes(value.at(i), what);
  }
}

}  // namespace

common_json parse_schema(std::string_view json_schema) {
  common_json schema;
  try {
    schema = parse_json("json_schema", json_schema, kMaxBytes);
  } catch (const InvalidArgumentError& error) {
    throw GrammarError(error.what());
  }
  if (!schema.is_object() && !schema.is_boolean()) {
    refuse(json_type(schema), "an object", "pass a JSON schema");
  }
  return schema;
}

common_json schema_for_grammar(const common_json& schema, const std::string& what,
                               SchemaFor purpose, SchemaRules& rules) {
  common_json result;
  check_sizes(schema, what);
  try {
    run_on_big_stack(kStack, [&] { result = rewrite_schema(schema, what, purpose, rules); });
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw InsufficientMemoryError(
        what + ": got too little memory, expected enough to convert it, simplify it");
  } catch (const std::exception& error) {
    throw GrammarError(what + ": got '" + error.what() +
                       "' from its conversion, expected what a grammar can express, simplify it");
  }
  // Anything at all is not the same as no schema.
  if (result.empty()) result["$comment"] = "any value";
  return result;
}

std::string grammar_of_schema(std::string_view json_schema) {
  const common_json given = parse_schema(json_schema);
  const std::string text = given.dump();
  SchemaRules rules({text});
  const common_json schema = schema_for_grammar(given, "json_schema", SchemaFor::kAnswer, rules);
  std::string grammar;
  std::string note;
  try {
    run_on_big_stack(kStack, [&] {
      conversion_note.clear();
      grammar = json_schema_to_grammar(schema, true);
      note = conversion_note;
    });
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw InsufficientMemoryError(
        "json_schema: got too little memory, expected enough to convert it, simplify it");
  } catch (const std::exception& error) {
    refuse_note(error.what());
  }
  if (!note.empty()) refuse_note(note);
  grammar = rules.finished(grammar);
  if (grammar.size() > kMaxGrammarBytes) {
    refuse("what takes rules of " + std::to_string(grammar.size()) + " bytes",
           "at most " + std::to_string(kMaxGrammarBytes),
           "simplify its patterns, or their lengths");
  }
  return grammar;
}

}  // namespace pronk::inline v0
