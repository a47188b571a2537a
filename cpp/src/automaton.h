// Finite automata: what regular expressions match, and what several match together.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "code_points.h"
#include "regex_tree.h"

namespace pronk::inline v0 {

/// Thrown where an automaton would get larger than is sensible.
struct AutomatonTooLarge : std::length_error {
  using std::length_error::length_error;
};

/// A nondeterministic automaton. Node 0 is where it starts.
struct Nfa {
  enum class When : std::uint8_t { kAlways, kStart, kEnd, kBoundary, kNoBoundary };
  struct Skip {
    std::uint32_t to;
    When when;
  };
  struct Step {
    std::uint32_t to;
    std::uint32_t set;  // index in `sets`
  };
  struct Node {
    std::vector<Skip> skips;
    std::vector<Step> steps;
  };
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  std::vector<Node> nodes;
  std::vector<CodePoints> sets;
  std::vector<bool> accepts;   // by node
  std::uint32_t rest = kNone;  // a node where nothing that follows matters, if there is one

  std::uint32_t add_node();
  std::uint32_t add_set(const CodePoints& set);
};

/// That of the texts which match `regex` as a whole, or have a part that matches, between
/// characters of `around`. Throws AutomatonTooLarge.
Nfa nfa_of(const Regex& regex, const CodePoints* around = nullptr);

/// A language, or with `negated` all other texts.
struct Term {
  Nfa nfa;
  bool negated = false;
};

/// A deterministic automaton. State 0 is where it starts; from every state an accepting one can be
/// reached, so that without states there is no text at all.
struct Dfa {
  struct Edge {
    CodePoints set;
    std::uint32_t to;
  };
  struct State {
    bool accepting = false;
    std::vector<Edge> edges;
  };
  std::vector<State> states;

  bool matches(std::u32string_view text) const;
};

/// That of the texts of `alphabet` which belong to all `terms`. Throws AutomatonTooLarge.
Dfa intersect(const std::vector<Term>& terms, const CodePoints& alphabet,
              std::size_t max_states = 4096);

}  // namespace pronk::inline v0
