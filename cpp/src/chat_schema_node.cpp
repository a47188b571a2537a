#include "chat_schema_node.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "chat_json.h"
#include "pronk/error.h"
#include "utf8.h"

namespace pronk::inline v0 {
namespace {

const common_json* member(const common_json& schema, const char* key) {
  return schema.contains(key) ? &schema.at(key) : nullptr;
}

std::vector<std::string> strings(const common_json& array) {
  std::vector<std::string> result;
  for (std::size_t i = 0; i < array.size(); ++i) {
    if (array.at(i).is_string()) result.push_back(array.at(i).get<std::string>());
  }
  return result;
}

unsigned type_of(std::string_view name) {
  if (name == "null") return SchemaNode::kNull;
  if (name == "boolean") return SchemaNode::kBoolean;
  if (name == "integer") return SchemaNode::kInteger;
  if (name == "number") return SchemaNode::kNumber;
  if (name == "string") return SchemaNode::kString;
  if (name == "array") return SchemaNode::kArray;
  if (name == "object") return SchemaNode::kObject;
  return 0;
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// One name of a JSON pointer in a fragment of a URI.
std::string unescaped(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%' && i + 2 < text.size() && hex_value(text[i + 1]) >= 0 &&
        hex_value(text[i + 2]) >= 0) {
      c = static_cast<char>(hex_value(text[i + 1]) * 16 + hex_value(text[i + 2]));
      i += 2;
    } else if (c == '~' && i + 1 < text.size()) {
      c = text[++i] == '1' ? '/' : '~';
    }
    result += c;
  }
  return result;
}

// The narrower of the two.
void narrow(std::optional<Bound>& bound, Bound other, bool low) {
  if (bound) {
    const int order = compare(other.value, bound->value);
    const bool narrower = low ? order > 0 : order < 0;
    if (!narrower && !(order == 0 && other.exclusive)) return;
  }
  bound = std::move(other);
}

}  // namespace

std::string shown(const common_json& value) {
  constexpr std::size_t kLongest = 60;
  std::string text = value.dump_safe();
  if (text.size() <= kLongest) return text;
  std::string whole;
  Utf8Decoder decoder;
  decoder.push(text.substr(0, kLongest), whole);
  return whole + "...";
}

void SchemaDocument::refuse(const std::string& place, const std::string& got,
                            const std::string& expected, const std::string& advice) const {
  throw GrammarError(place + ": got " + got + ", expected " + expected + ", " + advice);
}

void SchemaDocument::unsupported(const std::string& place, const std::string& got) const {
  if (lenient_) return;
  refuse(place, got, "what a grammar can keep a text to",
         "leave it out, and check it in what comes back");
}

void SchemaDocument::spend(std::size_t n_states, const std::string& place) const {
  constexpr std::size_t kMost = 200000;
  n_states_ += n_states;
  if (n_states_ > kMost) {
    refuse(place, "patterns with more than " + std::to_string(kMost) + " states in all", "fewer",
           "simplify them");
  }
}

std::size_t SchemaDocument::count(const common_json& schema, const char* key,
                                  const std::string& place) const {
  const common_json& value = schema.at(key);
  if (value.is_number()) {
    const double number = value.get<double>();
    if (number >= 0 && number == std::floor(number)) {
      return number > 1e15 ? SchemaNode::kNoLimit - 1 : static_cast<std::size_t>(number);
    }
  }
  refuse(place + "." + key, shown(value), "a whole number from 0 on", "pass one");
}

Schemas SchemaDocument::list(const common_json& schema, const char* key,
                             const std::string& place) const {
  const common_json& array = schema.at(key);
  const std::string where = place + "." + key;
  if (!array.is_array() || array.empty()) {
    refuse(where, array.is_array() ? "none" : json_type(array), "an array of schemas",
           "pass at least one");
  }
  Schemas result;
  for (std::size_t i = 0; i < array.size(); ++i) {
    result.push_back({&array.at(i), where + "[" + std::to_string(i) + "]"});
  }
  return result;
}

const common_json& SchemaDocument::resolve(const SchemaAt& reference) const {
  const common_json& value = reference.schema->at("$ref");
  const std::string where = reference.place + ".$ref";
  if (!value.is_string()) refuse(where, json_type(value), "a string", "pass '#/$defs/...'");
  const std::string ref = value.get<std::string>();
  if (ref != "#" && !ref.starts_with("#/")) {
    refuse(where, shown(value), "a reference into the same document, as '#/$defs/...'",
           "put what it refers to into $defs");
  }
  const common_json* at = &root_;
  for (std::size_t begin = 1; begin < ref.size();) {
    const std::size_t end = std::min(ref.find('/', begin + 1), ref.size());
    const std::string name = unescaped(std::string_view(ref).substr(begin + 1, end - begin - 1));
    begin = end;
    if (at->is_object() && at->contains(name)) {
      at = &at->at(name);
      continue;
    }
    const bool number = !name.empty() && name.size() < 10 &&
                        name.find_first_not_of("0123456789") == std::string::npos;
    if (at->is_array() && number && std::stoul(name) < at->size()) {
      at = &at->at(static_cast<std::size_t>(std::stoul(name)));
      continue;
    }
    refuse(where, shown(value), "a reference to something that is there", "define it");
  }
  return *at;
}

SchemaAt SchemaDocument::target(SchemaAt schema) const {
  static const std::set<std::string> kNotes = {"title",    "description", "default",
                                               "examples", "deprecated",  "$comment",
                                               "readOnly", "writeOnly"};
  std::set<const common_json*> seen;
  while (schema.schema->is_object() && schema.schema->contains("$ref") &&
         seen.insert(schema.schema).second) {
    for (const auto& [key, value] : schema.schema->items()) {
      if (key != "$ref" && !kNotes.contains(key)) return schema;
    }
    schema.schema = &resolve(schema);
  }
  return schema;
}

SchemaAt SchemaDocument::made(const common_json* of, const std::string& name,
                              const std::string& place, common_json schema) {
  return {&made_.emplace(std::pair{of, name}, std::move(schema)).first->second, place};
}

SchemaNode SchemaDocument::read(const Schemas& schemas) {
  SchemaNode node;
  if (!schemas.empty()) node.place = schemas[0].place;
  for (const SchemaAt& schema : schemas) add(node, schema);
  return node;
}

void SchemaDocument::add(SchemaNode& node, const SchemaAt& at) {
  const common_json& schema = *at.schema;
  if (schema.is_boolean()) {
    if (!schema.get<bool>()) throw Unsatisfiable{at.place, "false, which nothing follows"};
    return;
  }
  if (!schema.is_object()) {
    refuse(at.place, json_type(schema), "an object or a boolean", "pass a JSON schema");
  }
  if (open_.contains(&schema)) {
    refuse(at.place, "a schema that refers to itself, and to nothing else",
           "references to other schemas, or to parts of values", "define it");
  }
  if (!node.seen_.insert(&schema).second) return;
  struct Open {
    Open(std::set<const common_json*>& all, const common_json* one) : all_(all), one_(one) {
      all_.insert(one_);
    }
    ~Open() { all_.erase(one_); }
    std::set<const common_json*>& all_;
    const common_json* one_;
  } open(open_, &schema);

  if (schema.contains("$ref")) add(node, {&resolve(at), at.place});
  if (const common_json* type = member(schema, "type")) {
    unsigned types = 0;
    const auto names = type->is_string() ? std::vector{type->get<std::string>()} : strings(*type);
    for (const std::string& name : names) types |= type_of(name);
    const bool all = std::all_of(names.begin(), names.end(),
                                 [](const std::string& name) { return type_of(name) != 0; });
    if (!all || names.empty()) {
      refuse(
          at.place + ".type", shown(*type),
          "'null', 'boolean', 'integer', 'number', 'string', 'array', 'object' or a list of them",
          "choose one of them");
    }
    node.types &= types;
    node.typed = true;
    if (node.types == 0) throw Unsatisfiable{at.place, "types that exclude each other"};
  }
  read_values(node, schema, at.place);
  read_number(node, schema, at.place);
  for (const char* key : {"pattern", "format"}) {
    const common_json* value = member(schema, key);
    if (value == nullptr) continue;
    if (!value->is_string())
      refuse(at.place + "." + key, json_type(*value), "a string", "pass one");
    (*key == 'p' ? node.patterns : node.formats)
        .push_back({value->get<std::string>(), at.place + "." + key});
  }
  if (schema.contains("minLength")) node.length.at_least(count(schema, "minLength", at.place));
  if (schema.contains("maxLength")) node.length.at_most(count(schema, "maxLength", at.place));
  read_array(node, schema, at.place);
  read_object(node, schema, at.place);
  read_logic(node, schema, at.place);
}

void SchemaDocument::read_values(SchemaNode& node, const common_json& schema,
                                 const std::string& place) {
  const auto restrict_to = [&](const std::vector<const common_json*>& values) {
    if (!node.values) {
      node.values = values;
      return;
    }
    std::set<std::string> others;
    for (const common_json* value : values) others.insert(value->dump());
    std::erase_if(*node.values,
                  [&](const common_json* value) { return !others.contains(value->dump()); });
  };
  if (const common_json* value = member(schema, "const")) restrict_to({value});
  if (const common_json* values = member(schema, "enum")) {
    if (!values->is_array() || values->empty()) {
      refuse(place + ".enum", values->is_array() ? "no values" : json_type(*values),
             "an array of values", "pass at least one");
    }
    std::vector<const common_json*> all;
    for (std::size_t i = 0; i < values->size(); ++i) all.push_back(&values->at(i));
    restrict_to(all);
  }
}

void SchemaDocument::read_number(SchemaNode& node, const common_json& schema,
                                 const std::string& place) {
  const auto number = [&](const char* key) {
    const common_json* value = member(schema, key);
    // In draft 4 it is a flag of the other one.
    if (value != nullptr && !value->is_number() && !value->is_boolean()) {
      refuse(place + "." + key, json_type(*value), "a number", "pass one");
    }
    return value;
  };
  for (const bool low : {true, false}) {
    const common_json* bound = number(low ? "minimum" : "maximum");
    const common_json* exclusive = number(low ? "exclusiveMinimum" : "exclusiveMaximum");
    auto& limit = low ? node.limits.low : node.limits.high;
    const bool flag = exclusive != nullptr && exclusive->is_boolean() && exclusive->get<bool>();
    if (bound != nullptr && bound->is_number()) narrow(limit, {Decimal(bound->dump()), flag}, low);
    if (exclusive != nullptr && exclusive->is_number()) {
      narrow(limit, {Decimal(exclusive->dump()), true}, low);
    }
  }
  if (const common_json* multiple = number("multipleOf")) {
    if (!multiple->is_number() || multiple->get<double>() <= 0) {
      refuse(place + ".multipleOf", shown(*multiple), "a number above 0", "pass one");
    }
    node.multiple_of.push_back({multiple, place + ".multipleOf"});
  }
}

void SchemaDocument::read_array(SchemaNode& node, const common_json& schema,
                                const std::string& place) {
  if (schema.contains("minItems")) node.items.at_least(count(schema, "minItems", place));
  if (schema.contains("maxItems")) node.items.at_most(count(schema, "maxItems", place));
  const common_json* items = member(schema, "items");
  const common_json* prefix = member(schema, "prefixItems");
  const common_json* rest = items;
  const char* rest_name = ".items";
  const char* prefix_name = ".prefixItems";
  if (items != nullptr && items->is_array()) {  // until draft 2019-09
    prefix = items;
    prefix_name = ".items";
    rest = member(schema, "additionalItems");
    rest_name = ".additionalItems";
  } else if (items == nullptr) {
    rest = member(schema, "unevaluatedItems");
    rest_name = ".unevaluatedItems";
  }
  if (prefix != nullptr || rest != nullptr) {
    SchemaNode::Array array;
    if (prefix != nullptr) {
      if (!prefix->is_array()) {
        refuse(place + prefix_name, json_type(*prefix), "an array of schemas", "pass one");
      }
      for (std::size_t i = 0; i < prefix->size(); ++i) {
        array.prefix.push_back(
            {&prefix->at(i), place + prefix_name + "[" + std::to_string(i) + "]"});
      }
    }
    if (rest != nullptr) array.rest = {rest, place + rest_name};
    node.arrays.push_back(std::move(array));
  }
  if (schema.contains("contains") &&
      !(schema.contains("minContains") && count(schema, "minContains", place) == 0)) {
    unsupported(place + ".contains", "a schema");
  }
}

void SchemaDocument::read_object(SchemaNode& node, const common_json& schema,
                                 const std::string& place) {
  if (schema.contains("minProperties"))
    node.members.at_least(count(schema, "minProperties", place));
  if (schema.contains("maxProperties")) node.members.at_most(count(schema, "maxProperties", place));
  SchemaNode::Object object;
  for (const char* key : {"properties", "patternProperties"}) {
    const common_json* members = member(schema, key);
    if (members == nullptr) continue;
    const std::string where = place + "." + key;
    if (!members->is_object()) refuse(where, json_type(*members), "an object", "pass one");
    auto& into = std::string_view(key) == "properties" ? object.properties : object.patterns;
    for (const auto& [name, inner] : members->items()) {
      into.emplace_back(name, SchemaAt{&inner, where + "." + name});
    }
  }
  if (const common_json* rest = member(schema, "additionalProperties")) {
    object.rest = {rest, place + ".additionalProperties"};
  }
  if (!object.properties.empty() || !object.patterns.empty() || object.rest ||
      schema.contains("properties") || schema.contains("unevaluatedProperties")) {
    // One that says nothing of other members has none: all that there are count as evaluated.
    node.objects.push_back(std::move(object));
  }
  if (const common_json* required = member(schema, "required"); required && required->is_array()) {
    for (const std::string& name : strings(*required)) {
      if (std::find(node.required.begin(), node.required.end(), name) == node.required.end()) {
        node.required.push_back(name);
      }
    }
  }
  if (const common_json* names = member(schema, "propertyNames")) {
    node.names.push_back({names, place + ".propertyNames"});
  }
}

void SchemaDocument::read_logic(SchemaNode& node, const common_json& schema,
                                const std::string& place) {
  if (schema.contains("allOf")) {
    for (const SchemaAt& each : list(schema, "allOf", place)) add(node, each);
  }
  for (const char* key : {"anyOf", "oneOf"}) {
    if (schema.contains(key)) node.choices.push_back(list(schema, key, place));
  }
  // What follows `then` and either `if` or `else` follows all three.
  if (const common_json* condition = member(schema, "if")) {
    const common_json* then = member(schema, "then");
    const common_json* otherwise = member(schema, "else");
    if (then != nullptr && otherwise != nullptr) {
      node.choices.push_back({{condition, place + ".if"}, {otherwise, place + ".else"}});
    }
    if (then != nullptr) add(node, {then, place + ".then"});
    if (then == nullptr && otherwise != nullptr) {
      node.choices.push_back({{condition, place + ".if"}, {otherwise, place + ".else"}});
    }
  }
  // A member and what it asks for, or neither.
  for (const char* key : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const common_json* dependent = member(schema, key);
    if (dependent == nullptr || !dependent->is_object()) continue;
    for (const auto& [name, asked] : dependent->items()) {
      const std::string where = place + "." + key + "." + name;
      common_json without = common_json::object();
      without["properties"] = common_json::object();
      without["properties"][name] = false;
      const SchemaAt absent = made(&asked, "without", where, std::move(without));
      SchemaAt present{&asked, where};
      if (asked.is_array()) {
        common_json required = common_json::object();
        required["required"] = asked;
        present = made(&asked, "with", where, std::move(required));
      }
      node.choices.push_back({present, absent});
    }
  }
  if (const common_json* excluded = member(schema, "not")) {
    const bool all = (excluded->is_boolean() && excluded->get<bool>()) ||
                     (excluded->is_object() && excluded->empty());
    if (all) throw Unsatisfiable{place + ".not", "everything, which leaves nothing"};
    if (!excluded->is_boolean()) unsupported(place + ".not", shown(*excluded));
  }
  for (const char* key : {"$dynamicRef", "$recursiveRef"}) {
    if (schema.contains(key)) unsupported(place + "." + key, shown(schema.at(key)));
  }
}

}  // namespace pronk::inline v0
