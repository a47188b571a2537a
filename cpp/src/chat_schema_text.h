// Strings that follow a JSON schema.
#pragma once

#include <string>
#include <vector>

#include "automaton.h"
#include "chat_schema_node.h"

namespace pronk::inline v0 {

/// Repetitions in a grammar end there.
constexpr std::size_t kMaxSchemaCount = 2000;

/// Whether `node` asks of strings for more than a length.
bool limits_text(const SchemaNode& node);

/// The texts that follow `node`, and all of `terms`. Where a maximum of the length makes too many
/// states, a lower one takes its place. Throws GrammarError.
Dfa text_of(const SchemaDocument& document, const SchemaNode& node, std::vector<Term> terms = {});

/// Whether a part of `text` matches a pattern. Throws GrammarError.
bool matches_pattern(const SchemaDocument& document, const SchemaNode::Text& pattern,
                     const std::string& text);

}  // namespace pronk::inline v0
