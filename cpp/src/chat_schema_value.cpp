#include "chat_schema_value.h"

#include <algorithm>
#include <cmath>

#include "chat_schema_members.h"
#include "chat_schema_text.h"

namespace pronk::inline v0 {
namespace {

using Node = SchemaNode;

unsigned type_of(const common_json& value) {
  if (value.is_null()) return Node::kNull;
  if (value.is_boolean()) return Node::kBoolean;
  if (value.is_string()) return Node::kString;
  if (value.is_array()) return Node::kArray;
  if (value.is_object()) return Node::kObject;
  const double number = value.get<double>();
  return value.is_number_integer() || number == std::floor(number) ? Node::kInteger
                                                                   : Node::kFraction;
}

bool within(const Node::Count& count, std::size_t n) { return n >= count.min && n <= count.max; }

bool admits_all(SchemaDocument& document, const Schemas& schemas, const common_json& value) {
  try {
    return admits(document, document.read(schemas), value);
  } catch (const Unsatisfiable&) {
    return false;
  }
}

bool admits_number(const Node& node, const common_json& value) {
  const Decimal number(value.dump());
  if (const auto& low = node.limits.low) {
    const int order = compare(number, low->value);
    if (order < 0 || (order == 0 && low->exclusive)) return false;
  }
  if (const auto& high = node.limits.high) {
    const int order = compare(number, high->value);
    if (order > 0 || (order == 0 && high->exclusive)) return false;
  }
  // As validators find out.
  return std::all_of(node.multiple_of.begin(), node.multiple_of.end(), [&](const SchemaAt& each) {
    const double quotient = value.get<double>() / each.schema->get<double>();
    return quotient == std::trunc(quotient);
  });
}

bool admits_array(SchemaDocument& document, const Node& node, const common_json& value) {
  if (!within(node.items, value.size())) return false;
  for (std::size_t i = 0; i < value.size(); ++i) {
    for (const auto& array : node.arrays) {
      const bool in_prefix = i < array.prefix.size();
      if (!in_prefix && !array.rest) continue;
      const SchemaAt& schema = in_prefix ? array.prefix[i] : *array.rest;
      if (!admits_all(document, {schema}, value.at(i))) return false;
    }
  }
  return true;
}

bool admits_object(SchemaDocument& document, const Node& node, const common_json& value) {
  if (!within(node.members, value.size())) return false;
  for (const std::string& name : node.required) {
    if (!value.contains(name)) return false;
  }
  for (const auto& [name, inner] : value.items()) {
    if (!admits_name(document, node, name)) return false;
    if (!admits_all(document, schemas_of(document, node, name), inner)) return false;
  }
  return true;
}

}  // namespace

bool admits(SchemaDocument& document, const SchemaNode& node, const common_json& value) {
  const unsigned type = type_of(value);
  if ((node.types & type) == 0) return false;
  if (node.values && std::none_of(node.values->begin(), node.values->end(),
                                  [&](const auto* each) { return each->dump() == value.dump(); })) {
    return false;
  }
  if ((type & Node::kNumber) != 0 && !admits_number(node, value)) return false;
  if (type == Node::kString && node.has_strings() &&
      !text_of(document, node).matches(code_points_of(value.get<std::string>()))) {
    return false;
  }
  if (type == Node::kArray && !admits_array(document, node, value)) return false;
  if (type == Node::kObject && !admits_object(document, node, value)) return false;
  return std::all_of(node.choices.begin(), node.choices.end(), [&](const Schemas& choices) {
    return std::any_of(choices.begin(), choices.end(), [&](const SchemaAt& choice) {
      return admits_all(document, {choice}, value);
    });
  });
}

}  // namespace pronk::inline v0
