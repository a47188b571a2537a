#include "automaton.h"

#include <algorithm>
#include <map>
#include <set>

namespace pronk::inline v0 {
namespace {

constexpr std::size_t kMaxNodes = std::size_t{1} << 15;
// Nodes in all states of a deterministic automaton together, while it is made.
constexpr std::size_t kMaxMembers = std::size_t{1} << 22;
constexpr std::size_t kMaxSets = 4096;
// Each takes ten bytes of a grammar, and more.
constexpr std::size_t kMaxEdges = std::size_t{1} << 16;
// Comparisons of sets with characters; places for what follows a state by a character.
constexpr std::size_t kMaxWork = std::size_t{1} << 23;
const CodePoints kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};

Nfa::When when_of(Regex::Kind kind) {
  switch (kind) {
    case Regex::Kind::kStart:
      return Nfa::When::kStart;
    case Regex::Kind::kEnd:
      return Nfa::When::kEnd;
    case Regex::Kind::kBoundary:
      return Nfa::When::kBoundary;
    default:
      return Nfa::When::kNoBoundary;
  }
}

// Thompson's construction: adds `regex` after the node `from`, returns the node after it.
std::uint32_t append(Nfa& nfa, const Regex& regex, std::uint32_t from) {
  const auto skip = [&](std::uint32_t a, std::uint32_t b) {
    nfa.nodes[a].skips.push_back({b, Nfa::When::kAlways});
  };
  switch (regex.kind) {
    case Regex::Kind::kSequence:
      for (const Regex& part : regex.parts) from = append(nfa, part, from);
      return from;
    case Regex::Kind::kEither: {
      const std::uint32_t end = nfa.add_node();
      for (const Regex& part : regex.parts) {
        const std::uint32_t begin = nfa.add_node();
        skip(from, begin);
        skip(append(nfa, part, begin), end);
      }
      return end;
    }
    case Regex::Kind::kRepeat: {
      const Regex& part = regex.parts[0];
      for (std::size_t i = 0; i < regex.min; ++i) from = append(nfa, part, from);
      const std::uint32_t end = nfa.add_node();
      if (regex.max == Regex::kNoLimit) {
        const std::uint32_t begin = nfa.add_node();
        skip(from, begin);
        skip(begin, end);
        skip(append(nfa, part, begin), begin);
        return end;
      }
      for (std::size_t i = regex.min; i < regex.max; ++i) {
        skip(from, end);
        from = append(nfa, part, from);
      }
      skip(from, end);
      return end;
    }
    case Regex::Kind::kSet: {
      const std::uint32_t to = nfa.add_node();
      const std::uint32_t set = nfa.add_set(regex.set);
      nfa.nodes[from].steps.push_back({to, set});
      return to;
    }
    default: {
      const std::uint32_t to = nfa.add_node();
      nfa.nodes[from].skips.push_back({to, when_of(regex.kind)});
      return to;
    }
  }
}

// The characters that no set tells apart, as classes.
struct Alphabet {
  std::vector<CodePoints> classes;
  std::vector<bool> word;                                           // by class
  std::vector<std::vector<std::vector<std::uint32_t>>> classes_of;  // by term and set

  Alphabet(const std::vector<Term>& terms, const CodePoints& all) {
    std::vector<const CodePoints*> sets = {&all, &kWord};
    for (const Term& term : terms) {
      for (const CodePoints& set : term.nfa.sets) sets.push_back(&set);
    }
    std::set<char32_t> cuts;
    for (const CodePoints* set : sets) {
      for (const auto& range : set->ranges()) {
        cuts.insert(range.first);
        cuts.insert(range.last + 1);
      }
    }
    if (sets.size() * cuts.size() > kMaxWork) {
      throw AutomatonTooLarge("more than " + std::to_string(kMaxWork) +
                              " pairs of a character and a set of them");
    }
    std::map<std::vector<bool>, std::size_t> known;
    for (auto cut = cuts.begin(); cut != cuts.end(); ++cut) {
      if (!all.contains(*cut)) continue;
      std::vector<bool> belongs;
      for (const CodePoints* set : sets) belongs.push_back(set->contains(*cut));
      const auto [at, is_new] = known.emplace(belongs, classes.size());
      if (is_new) {
        classes.emplace_back();
        word.push_back(belongs[1]);
      }
      // A cut is followed by another one, as each range has an end.
      classes[at->second].add(*cut, *std::next(cut) - 1);
    }
    for (const Term& term : terms) {
      auto& of_term = classes_of.emplace_back();
      for (const CodePoints& set : term.nfa.sets) {
        auto& of_set = of_term.emplace_back();
        for (std::size_t i = 0; i < classes.size(); ++i) {
          if (set.contains(classes[i].ranges()[0].first)) {
            of_set.push_back(static_cast<std::uint32_t>(i));
          }
        }
      }
    }
  }
};

using Nodes = std::vector<std::uint32_t>;

enum class Side : std::uint8_t { kNothing, kWord, kOther };

// Adds what can be reached from `nodes` between two characters. `empty_boundary` says whether the
// one place in the empty text is a boundary of words, of which readers of patterns disagree.
Nodes closure(const Nfa& nfa, Nodes nodes, Side before, Side after, bool empty_boundary) {
  std::vector<bool> seen(nfa.nodes.size());
  for (const std::uint32_t node : nodes) seen[node] = true;
  const bool boundary = (before == Side::kWord) != (after == Side::kWord);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const Nfa::Skip& skip : nfa.nodes[nodes[i]].skips) {
      const bool open = skip.when == Nfa::When::kAlways ||
                        (skip.when == Nfa::When::kStart && before == Side::kNothing) ||
                        (skip.when == Nfa::When::kEnd && after == Side::kNothing) ||
                        (skip.when == Nfa::When::kBoundary && boundary) ||
                        (skip.when == Nfa::When::kNoBoundary && !boundary &&
                         (before != after || before != Side::kNothing || !empty_boundary));
      if (!open || seen[skip.to]) continue;
      seen[skip.to] = true;
      nodes.push_back(skip.to);
    }
  }
  return nodes;
}

// The subset construction, over several automata at once.
class Product {
 public:
  Product(const std::vector<Term>& terms, const CodePoints& all, std::size_t max_states)
      : terms_(terms), alphabet_(terms, all), max_states_(max_states) {
    for (const Term& term : terms) {
      for (const auto& node : term.nfa.nodes) {
        for (const auto& skip : node.skips) {
          boundaries_ = boundaries_ || skip.when == Nfa::When::kBoundary ||
                        skip.when == Nfa::When::kNoBoundary;
        }
      }
    }
  }

  Dfa run() {
    state_of({std::vector<Nodes>(terms_.size(), Nodes{0}), Side::kNothing});
    for (std::size_t i = 0; i < keys_.size(); ++i) expand(i);
    return trimmed();
  }

 private:
  struct Key {
    std::vector<Nodes> nodes;  // by term, before anything is skipped; ascending
    Side before;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  std::uint32_t state_of(Key key) {
    for (const Nodes& nodes : key.nodes) n_members_ += nodes.size();
    const auto [at, is_new] = numbers_.emplace(std::move(key), numbers_.size());
    if (is_new) {
      if (numbers_.size() > max_states_ || n_members_ > kMaxMembers) {
        throw AutomatonTooLarge("more than " + std::to_string(max_states_) + " states");
      }
      keys_.push_back(&at->first);
      dfa_.states.emplace_back();
    }
    return static_cast<std::uint32_t>(at->second);
  }

  void expand(std::size_t state) {
    const Key& key = *keys_[state];
    bool accepting = true;
    for (std::size_t t = 0; t < terms_.size(); ++t) {
      const Nfa& nfa = terms_[t].nfa;
      const Nodes last = closure(nfa, key.nodes[t], key.before, Side::kNothing, !terms_[t].negated);
      const bool accepts = std::any_of(last.begin(), last.end(),
                                       [&](std::uint32_t node) { return nfa.accepts[node]; });
      accepting = accepting && accepts != terms_[t].negated;
    }
    dfa_.states[state].accepting = accepting;
    step(state, Side::kOther);
    if (boundaries_) step(state, Side::kWord);
  }

  // To the characters that make a word, or to the others; where that makes no difference, to all.
  void step(std::size_t state, Side after) {
    const Key& key = *keys_[state];
    const std::size_t n = alphabet_.classes.size();
    n_work_ += n * terms_.size();
    if (n_work_ > kMaxWork) {
      throw AutomatonTooLarge("more than " + std::to_string(kMaxWork) +
                              " pairs of a state and a character");
    }
    std::vector<std::vector<Nodes>> next(n, std::vector<Nodes>(terms_.size()));
    for (std::size_t t = 0; t < terms_.size(); ++t) {
      const Nfa& nfa = terms_[t].nfa;
      for (const std::uint32_t node : closure(nfa, key.nodes[t], key.before, after, false)) {
        for (const Nfa::Step& each : nfa.nodes[node].steps) {
          for (const std::uint32_t c : alphabet_.classes_of[t][each.set]) {
            next[c][t].push_back(each.to);
          }
        }
      }
    }
    for (std::size_t c = 0; c < n; ++c) {
      if (boundaries_ && alphabet_.word[c] != (after == Side::kWord)) continue;
      bool dead = false;
      for (std::size_t t = 0; t < terms_.size() && !dead; ++t) {
        Nodes& nodes = next[c][t];
        std::sort(nodes.begin(), nodes.end());
        nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
        const std::uint32_t rest = terms_[t].nfa.rest;
        const bool all = std::binary_search(nodes.begin(), nodes.end(), rest);
        if (all) nodes = {rest};
        dead = terms_[t].negated ? all : nodes.empty();
      }
      if (dead) continue;
      const std::uint32_t to = state_of({std::move(next[c]), after});
      auto& edges = dfa_.states[state].edges;
      const auto same = std::find_if(edges.begin(), edges.end(),
                                     [&](const Dfa::Edge& edge) { return edge.to == to; });
      if (same == edges.end()) {
        if (++n_edges_ > kMaxEdges) {
          throw AutomatonTooLarge("more than " + std::to_string(kMaxEdges) + " transitions");
        }
        edges.push_back({alphabet_.classes[c], to});
      } else {
        same->set = same->set | alphabet_.classes[c];
      }
    }
  }

  // Without the states from which nothing is accepted.
  Dfa trimmed() {
    const std::size_t n = dfa_.states.size();
    std::vector<std::vector<std::uint32_t>> sources(n);
    std::vector<std::uint32_t> live;
    std::vector<bool> is_live(n);
    for (std::size_t i = 0; i < n; ++i) {
      for (const auto& edge : dfa_.states[i].edges) {
        sources[edge.to].push_back(static_cast<std::uint32_t>(i));
      }
      if (dfa_.states[i].accepting) {
        is_live[i] = true;
        live.push_back(static_cast<std::uint32_t>(i));
      }
    }
    for (std::size_t i = 0; i < live.size(); ++i) {
      for (const std::uint32_t source : sources[live[i]]) {
        if (is_live[source]) continue;
        is_live[source] = true;
        live.push_back(source);
      }
    }
    if (!is_live[0]) return {};
    std::vector<std::uint32_t> number(n);
    std::uint32_t count = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (is_live[i]) number[i] = count++;
    }
    Dfa result;
    for (std::size_t i = 0; i < n; ++i) {
      if (!is_live[i]) continue;
      Dfa::State& state = dfa_.states[i];
      std::erase_if(state.edges, [&](const auto& edge) { return !is_live[edge.to]; });
      for (auto& edge : state.edges) edge.to = number[edge.to];
      result.states.push_back(std::move(state));
    }
    return result;
  }

  const std::vector<Term>& terms_;
  const Alphabet alphabet_;
  const std::size_t max_states_;
  bool boundaries_ = false;
  std::map<Key, std::size_t> numbers_;
  std::vector<const Key*> keys_;  // by state
  std::size_t n_members_ = 0;
  std::size_t n_edges_ = 0;
  std::size_t n_work_ = 0;
  Dfa dfa_;
};

}  // namespace

std::uint32_t Nfa::add_node() {
  if (nodes.size() >= kMaxNodes) {
    throw AutomatonTooLarge("more than " + std::to_string(kMaxNodes) + " parts");
  }
  nodes.emplace_back();
  accepts.push_back(false);
  return static_cast<std::uint32_t>(nodes.size() - 1);
}

std::uint32_t Nfa::add_set(const CodePoints& set) {
  const auto at = std::find(sets.begin(), sets.end(), set);
  const auto index = static_cast<std::uint32_t>(at - sets.begin());
  if (at == sets.end()) {
    if (sets.size() >= kMaxSets) {
      throw AutomatonTooLarge("more than " + std::to_string(kMaxSets) + " sets of characters");
    }
    sets.push_back(set);
  }
  return index;
}

Nfa nfa_of(const Regex& regex, const CodePoints* around) {
  Nfa nfa;
  std::uint32_t at = nfa.add_node();
  const auto loop = [&] {
    const std::uint32_t node = nfa.add_node();
    nfa.nodes[at].skips.push_back({node, Nfa::When::kAlways});
    const std::uint32_t set = nfa.add_set(*around);
    nfa.nodes[node].steps.push_back({node, set});
    at = node;
  };
  if (around != nullptr) loop();
  at = append(nfa, regex, at);
  if (around != nullptr) {
    loop();
    nfa.rest = at;
  }
  nfa.accepts[at] = true;
  return nfa;
}

bool Dfa::matches(std::u32string_view text) const {
  if (states.empty()) return false;
  std::uint32_t state = 0;
  for (const char32_t c : text) {
    const auto& edges = states[state].edges;
    const auto edge = std::find_if(edges.begin(), edges.end(),
                                   [&](const Edge& each) { return each.set.contains(c); });
    if (edge == edges.end()) return false;
    state = edge->to;
  }
  return states[state].accepting;
}

Dfa intersect(const std::vector<Term>& terms, const CodePoints& alphabet, std::size_t max_states) {
  return Product(terms, alphabet, max_states).run();
}

}  // namespace pronk::inline v0
