// The `pattern` of JSON schemas: regular expressions of ECMA-262, as far as a finite automaton
// goes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "automaton.h"

namespace pronk::inline v0 {

/// Thrown for what is no pattern, or one that cannot be followed.
struct PatternError {
  std::string got;  ///< what there is, and where
  bool malformed;   ///< no reader of patterns takes it, rather than this one
};

/// What texts have to belong to, all of it, to match a pattern.
struct Pattern {
  std::vector<Term> terms;
  CodePoints alphabet;  ///< of the texts
};

/// Reads a pattern, which has to match a part of the text, as JSON Schema says. Readers differ in
/// what patterns mean beyond ASCII (`\d`, `.`, `$`, ...): the result admits what all of ECMA-262,
/// Python's `re` and Rust's `regex` do. Throws PatternError, AutomatonTooLarge.
Pattern read_pattern(std::string_view pattern);

/// Every character that JSON text can have.
const CodePoints& text_characters();

}  // namespace pronk::inline v0
