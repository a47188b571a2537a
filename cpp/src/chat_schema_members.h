// The members of objects that follow a JSON schema.
#pragma once

#include <string>
#include <vector>

#include "automaton.h"
#include "chat_schema_node.h"

namespace pronk::inline v0 {

/// What a member called `name` follows.
Schemas schemas_of(const SchemaDocument& document, const SchemaNode& node, const std::string& name);

/// Whether `propertyNames` lets a member be called `name`.
bool admits_name(SchemaDocument& document, const SchemaNode& node, const std::string& name);

/// The names that are described, or required, in this order.
std::vector<std::string> known_names(const SchemaNode& node);

/// Members with other names.
struct OtherMembers {
  Dfa names;
  Schemas schemas;
  bool limited;  ///< `names` leaves out more than the known ones
};

/// Where nothing is said of others there are none, unless nothing is said of any, or they are
/// `needed`.
std::vector<OtherMembers> other_members(SchemaDocument& document, const SchemaNode& node,
                                        bool needed);

}  // namespace pronk::inline v0
