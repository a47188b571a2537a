// Parts of a schema's grammar that are not llama.cpp's: for what its conversion of JSON schemas
// gets wrong, or leaves out.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "automaton.h"
#include "automaton_rules.h"
#include "json.h"

namespace pronk::inline v0 {

/// Hands out stand-ins, constants that the conversion takes over as they are, and puts rules in
/// their place afterwards.
class SchemaRules {
 public:
  /// The stand-ins occur in none of `texts`.
  explicit SchemaRules(const std::vector<std::string_view>& texts);

  /// A schema that stands for the texts of `dfa`: a JSON string, or what is spelled plainly.
  common_json stand_in(const Dfa& dfa, Spelling spelling);

  /// The name of a property that stands for `min` to `max` members, or any number of them, with
  /// names of `dfa`.
  std::string names(const Dfa& dfa, std::size_t min, std::size_t max);

  /// The grammar that is meant by `gbnf`, which the conversion made of a schema with stand-ins.
  std::string finished(const std::string& gbnf) const;

 private:
  struct Rule {
    std::string rules;
    std::string repeated;  // what a name of a property is followed by once more, if anything
  };
  std::size_t add(const Dfa& dfa, Spelling spelling, std::string key);

  std::string mark_;                            // in no text
  std::string number_;                          // digits that are in no text
  std::map<std::string, std::size_t> numbers_;  // of rules, by what they are
  std::vector<Rule> rules_;
  std::size_t n_bytes_ = 0;  // of all that were asked for
};

}  // namespace pronk::inline v0
