// Finite automata as rules of a grammar (GBNF).
#pragma once

#include <string>

#include "automaton.h"

namespace pronk::inline v0 {

enum class Spelling {
  kPlain,      ///< the text itself
  kJsonString  ///< within a string of JSON, quotes included
};

/// Rules for the texts of `dfa`, which has some. The first is called `name`, which consists of
/// A-Z a-z 0-9 -; the names of the others begin with it and a `-`. Text takes one way through them.
std::string rules_of(const Dfa& dfa, const std::string& name, Spelling spelling);

}  // namespace pronk::inline v0
