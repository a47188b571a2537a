// Whether a value follows a JSON schema.
#pragma once

#include "chat_schema_node.h"

namespace pronk::inline v0 {

/// Says no in doubt. Throws GrammarError.
bool admits(SchemaDocument& document, const SchemaNode& node, const common_json& value);

}  // namespace pronk::inline v0
