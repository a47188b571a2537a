// JSON schemas from outside, checked, and made fit for llama.cpp's conversion to grammars.
#pragma once

#include <string>
#include <string_view>

#include "chat_schema_rewrite.h"
#include "chat_schema_rules.h"
#include "json.h"

namespace pronk::inline v0 {

/// The schema of an answer, an object or a boolean. Throws GrammarError.
common_json parse_schema(std::string_view json_schema);

/// See rewrite_schema(). Never empty. Throws GrammarError, InsufficientMemoryError.
common_json schema_for_grammar(const common_json& schema, const std::string& what,
                               SchemaFor purpose, SchemaRules& rules);

}  // namespace pronk::inline v0
