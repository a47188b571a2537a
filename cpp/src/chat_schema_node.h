// What several JSON schemas together ask of one value.
#pragma once

#include <cstddef>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "json.h"
#include "number_language.h"

namespace pronk::inline v0 {

/// A schema within a document.
struct SchemaAt {
  const common_json* schema;
  std::string place;  ///< for messages
};
/// Schemas that a value has to follow all of.
using Schemas = std::vector<SchemaAt>;

/// Thrown where no value can follow a schema.
struct Unsatisfiable {
  std::string place;
  std::string got;
};

struct SchemaNode {
  static constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();
  enum Type : unsigned {
    kNull = 1,
    kBoolean = 2,
    kInteger = 4,
    kFraction = 8,  // numbers that are no integers
    kNumber = 12,
    kString = 16,
    kArray = 32,
    kObject = 64,
    kAny = 127
  };
  struct Text {
    std::string text, place;
  };
  struct Array {
    Schemas prefix;
    std::optional<SchemaAt> rest;  // of the items after those
  };
  struct Object {
    std::vector<std::pair<std::string, SchemaAt>> properties;
    std::vector<std::pair<std::string, SchemaAt>> patterns;
    std::optional<SchemaAt> rest;  // of the members that neither of them is for
  };
  struct Count {
    std::size_t min = 0, max = kNoLimit;
    void at_least(std::size_t n) { min = std::max(min, n); }
    void at_most(std::size_t n) { max = std::min(max, n); }
  };

  std::string place;
  unsigned types = kAny;
  bool typed = false;
  std::optional<std::vector<const common_json*>> values;
  NumberLimits limits;
  std::vector<SchemaAt> multiple_of;  // numbers rather than schemas
  Count length;
  std::vector<Text> patterns, formats;
  Count items;
  std::vector<Array> arrays;
  Count members;
  std::vector<Object> objects;
  std::vector<std::string> required;
  Schemas names;                 // that the names of members follow
  std::vector<Schemas> choices;  // of each, the value follows one

  bool has_numbers() const { return limits.low || limits.high || !multiple_of.empty(); }
  bool has_strings() const {
    return length.min > 0 || length.max != kNoLimit || !patterns.empty() || !formats.empty();
  }
  bool has_arrays() const { return items.min > 0 || items.max != kNoLimit || !arrays.empty(); }
  bool has_objects() const {
    return members.min > 0 || members.max != kNoLimit || !objects.empty() || !required.empty() ||
           !names.empty();
  }
  /// Whether it asks for nothing but that one of its choices be followed.
  bool only_choices() const {
    return !typed && !values && !has_numbers() && !has_strings() && !has_arrays() && !has_objects();
  }

 private:
  friend class SchemaDocument;
  std::set<const common_json*> seen_;
};

class SchemaDocument {
 public:
  /// `what` names the document in messages. A lenient reader leaves out what it cannot follow,
  /// where another one refuses it.
  SchemaDocument(const common_json& root, std::string what, bool lenient)
      : root_(root), what_(std::move(what)), lenient_(lenient) {}

  Schemas root() const { return {{&root_, what_}}; }
  /// Throws GrammarError, Unsatisfiable.
  SchemaNode read(const Schemas& schemas);
  /// `node` follows `schema` too. Throws GrammarError, Unsatisfiable.
  void add(SchemaNode& node, const SchemaAt& schema);
  /// The schema that is meant by one that does nothing but to refer to it.
  SchemaAt target(SchemaAt schema) const;

  [[noreturn]] void refuse(const std::string& place, const std::string& got,
                           const std::string& expected, const std::string& advice) const;
  /// Refuses what is right, but cannot be followed, or takes note to leave it out.
  void unsupported(const std::string& place, const std::string& got) const;
  /// Takes note of work of so many states of automata. Refuses too much of it.
  void spend(std::size_t n_states, const std::string& place) const;

 private:
  const common_json& resolve(const SchemaAt& reference) const;
  SchemaAt made(const common_json* of, const std::string& name, const std::string& place,
                common_json schema);
  void read_object(SchemaNode& node, const common_json& schema, const std::string& place);
  void read_array(SchemaNode& node, const common_json& schema, const std::string& place);
  void read_number(SchemaNode& node, const common_json& schema, const std::string& place);
  void read_values(SchemaNode& node, const common_json& schema, const std::string& place);
  void read_logic(SchemaNode& node, const common_json& schema, const std::string& place);
  std::size_t count(const common_json& schema, const char* key, const std::string& place) const;
  Schemas list(const common_json& schema, const char* key, const std::string& place) const;

  const common_json& root_;
  const std::string what_;
  const bool lenient_;
  mutable std::size_t n_states_ = 0;
  std::set<const common_json*> open_;  // being added, to find circles
  std::map<std::pair<const common_json*, std::string>, common_json> made_;
};

/// A value as messages show it.
std::string shown(const common_json& value);

}  // namespace pronk::inline v0
