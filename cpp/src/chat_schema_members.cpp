#include "chat_schema_members.h"

#include <algorithm>
#include <optional>
#include <set>

#include "chat_schema_text.h"
#include "chat_schema_value.h"
#include "schema_pattern.h"

namespace pronk::inline v0 {
namespace {

using Node = SchemaNode;

constexpr std::size_t kStatesPerTerm = 20;

std::vector<Node::Text> patterns_of(const Node& node) {
  std::vector<Node::Text> result;
  std::set<std::string> seen;
  for (const Node::Object& object : node.objects) {
    for (const auto& [pattern, schema] : object.patterns) {
      if (seen.insert(pattern).second) result.push_back({pattern, schema.place});
    }
  }
  return result;
}

Regex one_of(const std::vector<std::string>& texts) {
  std::vector<Regex> parts;
  for (const std::string& text : texts) parts.push_back(Regex::literal(code_points_of(text)));
  return Regex::either(std::move(parts));
}

// Adds what propertyNames asks for. False where it admits no name.
bool add_names(SchemaDocument& document, const Node& node, Node& texts, std::vector<Term>& terms) {
  if (node.names.empty()) return true;
  const Node names = document.read(node.names);
  if ((names.types & Node::kString) == 0) return false;
  if (!names.choices.empty()) document.unsupported(node.names[0].place, "alternatives");
  if (names.values) {
    std::vector<std::string> allowed;
    for (const common_json* value : *names.values) {
      if (value->is_string()) allowed.push_back(value->get<std::string>());
    }
    terms.push_back({nfa_of(one_of(allowed)), false});
  }
  texts.length = names.length;
  texts.formats = names.formats;
  texts.patterns.insert(texts.patterns.end(), names.patterns.begin(), names.patterns.end());
  return true;
}

// Names, none of the known ones, that match the pattern `only` of all patterns, or none of them.
std::optional<Dfa> names_of(SchemaDocument& document, const Node& node, const Node::Text* only) {
  std::vector<Term> terms;
  terms.push_back({nfa_of(one_of(known_names(node))), true});
  Node texts;
  texts.place = node.place;
  for (const Node::Text& pattern : patterns_of(node)) {
    if (only != nullptr && pattern.text == only->text) {
      texts.patterns.push_back(pattern);
      continue;
    }
    try {
      Pattern other = read_pattern(pattern.text);
      // Of several terms no single one is the opposite.
      if (other.terms.size() > 1) throw PatternError{"a lookahead", false};
      terms.push_back({std::move(other.terms[0].nfa), true});
      // What excludes texts has to be right in everybody's view.
      terms.push_back({nfa_of(Regex::repeat(Regex::of({{' ', '~'}}), 0)), false});
    } catch (const PatternError& error) {
      if (error.malformed) {
        document.refuse(pattern.place, error.got, "a regular expression", "correct it");
      }
      document.unsupported(pattern.place, error.got + ", beside other members,");
    }
  }
  if (!add_names(document, node, texts, terms)) return std::nullopt;
  // Every pattern goes through this with all others: each makes all states dearer.
  document.spend(kStatesPerTerm * terms.size(), node.place);
  return text_of(document, texts, std::move(terms));
}

}  // namespace

Schemas schemas_of(const SchemaDocument& document, const Node& node, const std::string& name) {
  Schemas result;
  for (const Node::Object& object : node.objects) {
    bool described = false;
    for (const auto& [each, schema] : object.properties) {
      if (each != name) continue;
      result.push_back(schema);
      described = true;
    }
    for (const auto& [pattern, schema] : object.patterns) {
      if (!matches_pattern(document, {pattern, schema.place}, name)) continue;
      result.push_back(schema);
      described = true;
    }
    if (!described && object.rest) result.push_back(*object.rest);
  }
  return result;
}

bool admits_name(SchemaDocument& document, const Node& node, const std::string& name) {
  if (node.names.empty()) return true;
  common_json text = common_json::make(name);
  return admits(document, document.read(node.names), text);
}

std::vector<std::string> known_names(const Node& node) {
  std::vector<std::string> result;
  std::set<std::string> seen;
  const auto note = [&](const std::string& name) {
    if (seen.insert(name).second) result.push_back(name);
  };
  for (const Node::Object& object : node.objects) {
    for (const auto& [name, schema] : object.properties) note(name);
  }
  for (const std::string& name : node.required) note(name);
  return result;
}

std::vector<OtherMembers> other_members(SchemaDocument& document, const Node& node, bool needed) {
  const std::vector<Node::Text> patterns = patterns_of(node);
  bool open = needed || node.objects.empty();
  for (const Node::Object& object : node.objects) open = open || object.rest;
  std::vector<OtherMembers> result;
  const auto add = [&](const Node::Text* only) {
    Schemas schemas;
    for (const Node::Object& object : node.objects) {
      bool described = false;
      for (const auto& [pattern, schema] : object.patterns) {
        if (only == nullptr || pattern != only->text) continue;
        schemas.push_back(schema);
        described = true;
      }
      if (!described && object.rest) schemas.push_back(*object.rest);
    }
    // Those that cannot have a value are not worth their names.
    const bool none = std::any_of(schemas.begin(), schemas.end(), [](const SchemaAt& each) {
      return each.schema->is_boolean() && !each.schema->get<bool>();
    });
    if (none) return;
    std::optional<Dfa> names = names_of(document, node, only);
    if (!names || names->states.empty()) return;
    result.push_back(
        {std::move(*names), std::move(schemas), !patterns.empty() || !node.names.empty()});
  };
  for (const Node::Text& pattern : patterns) add(&pattern);
  if (open) add(nullptr);
  return result;
}

}  // namespace pronk::inline v0
