#include "chat_schema_rewrite.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "chat_schema_members.h"
#include "chat_schema_node.h"
#include "chat_schema_text.h"
#include "chat_schema_value.h"
#include "number_language.h"

namespace pronk::inline v0 {
namespace {

using Node = SchemaNode;

constexpr std::size_t kMaxTuple = 256;     // items with a schema each
constexpr std::size_t kMaxNodes = 20000;   // of what a schema is made of
constexpr std::size_t kMaxParts = 200000;  // values, members and items of all of them
// Schemas within each other that are written so; the next one is referred to. Whatever has another
// inside is copied with it.
constexpr std::size_t kMaxInside = 16;
constexpr unsigned kMostRemainders = 128;
constexpr int kMostMultiples = 400;  // that are listed one by one

common_json object_with(const char* key, common_json value) {
  common_json result = common_json::object();
  result[key] = std::move(value);
  return result;
}

common_json of_type(const char* type) { return object_with("type", common_json(type)); }

class Rewriter {
 public:
  Rewriter(const common_json& schema, const std::string& what, SchemaFor purpose,
           SchemaRules& rules)
      : document_(schema, what, purpose == SchemaFor::kTool),
        tool_(purpose == SchemaFor::kTool),
        rules_(rules) {}

  common_json run() {
    try {
      // Never by reference: readers of calls look at what is there.
      common_json root = rewrite_node(document_.read(document_.root()));
      if (!definitions_.empty()) root["$defs"] = definitions_;
      return root;
    } catch (const Unsatisfiable& error) {
      document_.refuse(error.place, error.got, "what some value can follow", "correct it");
    }
  }

 private:
  struct Known {
    std::string name;
    bool done = false;
    bool referred = false;
    common_json result;
    std::optional<Unsatisfiable> failure;
  };

  // Takes note of so many parts of a node.
  void spend(const Node& node, std::size_t n) {
    n_parts_ += n;
    if (n_parts_ <= kMaxParts) return;
    document_.refuse(
        node.place,
        "combinations of more than " + std::to_string(kMaxParts) + " values, members and items",
        "fewer", "combine fewer alternatives");
  }

  // What all of `schemas` ask for. Each is rewritten once, and referred to from then on.
  common_json rewrite(Schemas schemas) {
    std::vector<const common_json*> key;
    for (SchemaAt& schema : schemas) {
      schema = document_.target(schema);
      key.push_back(schema.schema);
    }
    std::sort(key.begin(), key.end());
    key.erase(std::unique(key.begin(), key.end()), key.end());
    const auto [at, is_new] = known_.try_emplace(key);
    Known& known = at->second;
    if (known.failure) throw *known.failure;
    if (is_new) {
      known.name = "pronk" + std::to_string(known_.size());
      known.referred = ++n_inside_ % kMaxInside == 0;
      try {
        common_json result = rewrite_node(document_.read(schemas));
        --n_inside_;
        known.done = true;
        if (!known.referred) {
          known.result = result;
          return result;
        }
        definitions_[known.name] = std::move(result);
      } catch (const Unsatisfiable& failure) {
        --n_inside_;
        // What has met it within itself refers to it already.
        known.failure = failure;
        throw;
      }
    } else if (known.done && !known.referred) {
      definitions_[known.name] = known.result;
    }
    known.referred = true;
    return object_with("$ref", common_json("#/$defs/" + known.name));
  }

  common_json rewrite_node(Node node) {
    if (++n_nodes_ > kMaxNodes) {
      document_.refuse(node.place,
                       "combinations of more than " + std::to_string(kMaxNodes) + " schemas",
                       "fewer", "combine fewer alternatives");
    }
    if (!node.choices.empty()) return rewrite_choices(std::move(node));
    if (node.values) return rewrite_values(node);
    infer_types(node);
    if (node.types == Node::kAny && node.only_choices()) return common_json::object();
    std::vector<common_json> ways;
    std::optional<Unsatisfiable> failure;
    const auto way = [&](unsigned type, const auto& make) {
      if ((node.types & type) == 0) return;
      try {
        ways.push_back(make());
      } catch (const Unsatisfiable& error) {
        failure = error;
      }
    };
    way(Node::kObject, [&] { return rewrite_object(node); });
    way(Node::kArray, [&] { return rewrite_array(node); });
    way(Node::kString, [&] { return rewrite_string(node); });
    way(Node::kNumber, [&] { return rewrite_number(node); });
    way(Node::kBoolean, [&] { return of_type("boolean"); });
    way(Node::kNull, [&] { return of_type("null"); });
    return either(std::move(ways), failure);
  }

  static common_json either(std::vector<common_json> ways,
                            const std::optional<Unsatisfiable>& failure) {
    if (ways.empty()) throw *failure;
    if (ways.size() == 1) return std::move(ways[0]);
    common_json all = common_json::array();
    for (common_json& each : ways) all.push_back(std::move(each));
    return object_with("anyOf", std::move(all));
  }

  // Alternatives that no value can follow are left out.
  common_json rewrite_choices(Node node) {
    const Schemas choices = std::move(node.choices.back());
    node.choices.pop_back();
    const bool alone = node.choices.empty() && node.only_choices();
    std::vector<common_json> ways;
    std::optional<Unsatisfiable> failure;
    for (const SchemaAt& choice : choices) {
      try {
        if (alone) {
          ways.push_back(rewrite({choice}));
        } else {
          Node both = node;
          document_.add(both, choice);
          ways.push_back(rewrite_node(std::move(both)));
        }
      } catch (const Unsatisfiable& error) {
        failure = error;
      }
    }
    return either(std::move(ways), failure);
  }

  common_json rewrite_values(const Node& node) {
    spend(node, node.values->size());
    // Each is one of them: to look for it takes as long as there are many.
    Node others = node;
    others.values.reset();
    common_json values = common_json::array();
    for (const common_json* value : *node.values) {
      if (admits(document_, others, *value)) values.push_back(*value);
    }
    if (values.empty()) {
      throw Unsatisfiable{node.place, "values that the rest of the schema excludes"};
    }
    bool strings = true;
    for (std::size_t i = 0; i < values.size(); ++i) strings = strings && values.at(i).is_string();
    common_json result = strings ? of_type("string") : common_json::object();
    result["enum"] = std::move(values);
    return result;
  }

  // What says nothing of types is taken to be of the type that its other words are for.
  static void infer_types(Node& node) {
    if (node.typed) return;
    const unsigned type = node.has_objects()   ? Node::kObject
                          : node.has_arrays()  ? Node::kArray
                          : node.has_strings() ? Node::kString
                          : node.has_numbers() ? Node::kNumber
                                               : Node::kAny;
    node.types &= type;
  }

  // ---- numbers ----

  common_json rewrite_number(const Node& node) {
    bool integers = (node.types & Node::kFraction) == 0;
    unsigned divisor = 1;
    for (const SchemaAt& multiple : node.multiple_of) {
      const Decimal value(multiple.schema->dump());
      const Decimal::Scaled whole = value.scaled(0);
      const bool small =
          whole.exact && whole.digits.size() <= 3 && std::stoul(whole.digits) <= kMostRemainders;
      if (!small || node.multiple_of.size() > 1) return list_multiples(node, integers);
      integers = true;
      divisor = static_cast<unsigned>(std::stoul(whole.digits));
    }
    const bool plain = !node.limits.low && !node.limits.high && divisor == 1;
    if (plain) return of_type(integers ? "integer" : "number");
    Dfa dfa;
    try {
      dfa = integers ? integers_within(node.limits, divisor) : numbers_within(node.limits);
    } catch (const AutomatonTooLarge&) {
      return list_multiples(node, integers);
    }
    if (dfa.states.empty())
      throw Unsatisfiable{node.place,
                          "bounds that no number of 16 digits before or after the point "
                          "is within"};
    common_json result = rules_.stand_in(dfa, Spelling::kPlain);
    if (integers) result["type"] = "integer";
    return result;
  }

  // Those nearest to zero, or to the bound that is.
  common_json list_multiples(const Node& node, bool integers) {
    const common_json& step = *node.multiple_of[0].schema;
    const double size = step.get<double>();
    double first = 0;
    if (node.limits.low) first = std::max(0.0, std::ceil(node.limits.low->value.rounded() / size));
    if (node.limits.high) {
      first = std::min(first, std::floor(node.limits.high->value.rounded() / size));
    }
    common_json values = common_json::array();
    for (int i = 0; i <= kMostMultiples; ++i) {
      const double n = first + (i % 2 == 0 ? i / 2 : -(i + 1) / 2);
      const double value = n * size;
      if (std::abs(value) > 9e15) continue;
      const common_json number = value == std::floor(value)
                                     ? common_json(static_cast<std::int64_t>(value))
                                     : common_json(value);
      if (integers && !number.is_number_integer()) continue;
      if (admits(document_, node, number)) values.push_back(number);
    }
    if (values.empty()) {
      document_.unsupported(node.multiple_of[0].place, shown(step));
      return of_type(integers ? "integer" : "number");
    }
    return object_with("enum", std::move(values));
  }

  // ---- strings ----

  common_json rewrite_string(const Node& node) {
    if (node.length.min > node.length.max) {
      throw Unsatisfiable{node.place, "a minLength above the maxLength"};
    }
    if (node.length.min > kMaxSchemaCount) {
      document_.unsupported(node.place + ".minLength",
                            "repetitions of more than " + std::to_string(kMaxSchemaCount));
    }
    const std::size_t min = std::min(node.length.min, kMaxSchemaCount);
    if (!limits_text(node)) {
      common_json result = of_type("string");
      if (min > 0) result["minLength"] = static_cast<std::int64_t>(min);
      if (node.length.max != Node::kNoLimit) {
        result["maxLength"] = static_cast<std::int64_t>(std::min(node.length.max, kMaxSchemaCount));
      }
      return result;
    }
    const Dfa dfa = text_of(document_, node);
    if (dfa.states.empty()) throw Unsatisfiable{node.place, "a pattern that no text follows"};
    return rules_.stand_in(dfa, Spelling::kJsonString);
  }

  // ---- arrays ----

  common_json rewrite_array(const Node& node) {
    const std::size_t min = node.items.min;
    if (min > node.items.max) throw Unsatisfiable{node.place, "a minItems above the maxItems"};
    if (min > kMaxSchemaCount) {
      document_.unsupported(node.place + ".minItems",
                            "repetitions of more than " + std::to_string(kMaxSchemaCount));
    }
    std::size_t n_prefix = 0;
    for (const auto& array : node.arrays) n_prefix = std::max(n_prefix, array.prefix.size());
    if (n_prefix > 0) return rewrite_tuple(node, n_prefix);
    common_json result = of_type("array");
    const std::size_t max = std::min(node.items.max, kMaxSchemaCount);
    Schemas rest;
    for (const auto& array : node.arrays) {
      if (array.rest) rest.push_back(*array.rest);
    }
    const auto none = [] { return object_with("const", common_json::array()); };
    if (max == 0) return none();
    try {
      if (!rest.empty()) result["items"] = rewrite(rest);
    } catch (const Unsatisfiable&) {
      if (min > 0) throw;
      return none();
    }
    if (min > 0) result["minItems"] = static_cast<std::int64_t>(std::min(min, kMaxSchemaCount));
    if (node.items.max != Node::kNoLimit) result["maxItems"] = static_cast<std::int64_t>(max);
    return result;
  }

  common_json rewrite_tuple(const Node& node, std::size_t n_prefix) {
    const std::size_t n = std::min(std::max(n_prefix, node.items.min), node.items.max);
    if (n > kMaxTuple) {
      document_.refuse(node.place, std::to_string(n) + " items with a schema each",
                       "at most " + std::to_string(kMaxTuple), "describe them by `items`");
    }
    spend(node, n);
    common_json items = common_json::array();
    for (std::size_t i = 0; i < n; ++i) {
      Schemas schemas;
      for (const auto& array : node.arrays) {
        if (i < array.prefix.size()) {
          schemas.push_back(array.prefix[i]);
        } else if (array.rest) {
          schemas.push_back(*array.rest);
        }
      }
      try {
        items.push_back(schemas.empty() ? common_json::object() : rewrite(schemas));
      } catch (const Unsatisfiable&) {
        if (i < node.items.min) throw;
        break;
      }
    }
    if (items.empty()) return object_with("const", common_json::array());
    common_json result = of_type("array");
    result["prefixItems"] = std::move(items);
    return result;
  }

  // ---- objects ----

  struct Member {
    std::string name;
    common_json schema;
    bool required;
  };
  struct Others {
    Dfa names;
    common_json schema;
    bool limited;
  };

  // The members with known names that there may be.
  std::vector<Member> rewrite_members(const Node& node) {
    std::vector<Member> members;
    const std::vector<std::string> names = known_names(node);
    spend(node, names.size());
    for (const std::string& name : names) {
      const bool required =
          std::find(node.required.begin(), node.required.end(), name) != node.required.end();
      try {
        if (!admits_name(document_, node, name)) {
          throw Unsatisfiable{node.place, "a required member that propertyNames excludes"};
        }
        const Schemas schemas = schemas_of(document_, node, name);
        members.push_back(
            {name, schemas.empty() ? common_json::object() : rewrite(schemas), required});
      } catch (const Unsatisfiable&) {
        if (required) throw;
      }
    }
    return members;
  }

  std::vector<Others> rewrite_others(const Node& node, bool needed) {
    std::vector<Others> result;
    for (OtherMembers& each : other_members(document_, node, needed)) {
      try {
        result.push_back({std::move(each.names),
                          each.schemas.empty() ? common_json::object() : rewrite(each.schemas),
                          each.limited});
      } catch (const Unsatisfiable&) {
        // There are none of these.
      }
    }
    return result;
  }

  common_json rewrite_object(const Node& node) {
    std::vector<Member> members = rewrite_members(node);
    const auto n_required = static_cast<std::size_t>(std::count_if(
        members.begin(), members.end(), [](const Member& member) { return member.required; }));
    const std::size_t max = node.members.max;
    if (node.members.min > max || n_required > max) {
      throw Unsatisfiable{node.place, "more members required than allowed"};
    }
    std::size_t missing = node.members.min - std::min(node.members.min, n_required);
    // Optional members for which no place is left go.
    std::size_t optional = std::min(members.size() - n_required, max - n_required);
    std::erase_if(members, [&](const Member& member) {
      if (member.required) return false;
      if (optional == 0) return true;
      --optional;
      return false;
    });
    const std::size_t n_optional = members.size() - n_required;
    const std::size_t room = max == Node::kNoLimit ? max : max - members.size();
    std::vector<Others> others;
    if (room > 0) others = rewrite_others(node, missing > n_optional);
    const bool free = members.empty() && others.size() == 1;
    if (free && (tool_ || (!others[0].limited && missing == 0 && room == Node::kNoLimit))) {
      common_json result = of_type("object");
      if (!others[0].schema.empty()) result["additionalProperties"] = std::move(others[0].schema);
      return result;
    }
    if (tool_) others.clear();
    // Optional members make up for what is missing, then others.
    for (Member& member : members) {
      if (member.required || missing == 0) continue;
      member.required = true;
      --missing;
    }
    if (missing > 0 && (others.empty() || missing > std::min(room, kMaxSchemaCount)) && !tool_) {
      throw Unsatisfiable{node.place, "more members required than described"};
    }
    return object_of(members, others, missing, room);
  }

  // With at least `missing` and at most `room` of the others.
  common_json object_of(std::vector<Member>& members, std::vector<Others>& others,
                        std::size_t missing, std::size_t room) {
    common_json properties = common_json::object();
    common_json required = common_json::array();
    for (Member& member : members) {
      properties[member.name] = std::move(member.schema);
      if (member.required) required.push_back(member.name);
    }
    for (std::size_t i = 0; i < others.size() && room > 0; ++i) {
      // Each kind has its share of the room.
      std::size_t most = room;
      if (room != Node::kNoLimit) {
        const std::size_t share = room / (others.size() - i);
        most = std::min(std::max({missing, share, std::size_t{1}}), kMaxSchemaCount);
        room -= most;
      }
      const std::string name = rules_.names(others[i].names, missing, most);
      properties[name] = std::move(others[i].schema);
      if (missing > 0) required.push_back(name);
      missing = 0;
    }
    common_json result = of_type("object");
    result["properties"] = std::move(properties);
    if (!required.empty()) result["required"] = std::move(required);
    result["additionalProperties"] = false;
    return result;
  }

  SchemaDocument document_;
  const bool tool_;
  SchemaRules& rules_;
  std::map<std::vector<const common_json*>, Known> known_;
  common_json definitions_ = common_json::object();
  std::size_t n_nodes_ = 0;
  std::size_t n_parts_ = 0;
  std::size_t n_inside_ = 0;  // of which the rewriting has begun
};

}  // namespace

common_json rewrite_schema(const common_json& schema, const std::string& what, SchemaFor purpose,
                           SchemaRules& rules) {
  return Rewriter(schema, what, purpose, rules).run();
}

}  // namespace pronk::inline v0
