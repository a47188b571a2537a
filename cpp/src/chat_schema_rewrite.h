// JSON schemas in words that llama.cpp's conversion to grammars understands as they are meant.
#pragma once

#include <string>

#include "chat_schema_rules.h"
#include "json.h"

namespace pronk::inline v0 {

/// For whom a schema is rewritten.
enum class SchemaFor {
  kAnswer,  ///< what cannot be followed is refused
  /// What cannot be followed is left out, as the arguments of calls are checked once more. Objects
  /// with named members have no others, as formats of calls have no place for them.
  kTool
};

/// A schema that admits nothing which `schema` does not, and whose every string is one of JSON.
/// What it says with stand-ins, `rules` puts into the grammar. `what` names the schema in messages.
/// Throws GrammarError that names the place.
common_json rewrite_schema(const common_json& schema, const std::string& what, SchemaFor purpose,
                           SchemaRules& rules);

}  // namespace pronk::inline v0
