#include "grammar_rules.h"

#include <algorithm>
#include <utility>

namespace pronk::inline v0 {
namespace {

struct Edge {
  std::size_t to = 0;
  bool more = false;  // something of the sequence is left after it
};
using Graph = std::vector<std::vector<Edge>>;

// Which rules may be empty: those with an alternative of nothing but such.
std::vector<bool> find_empty(const std::vector<RuleShape>& rules) {
  std::vector<bool> empty(rules.size());
  const auto may_be_empty = [&](std::int64_t element) {
    return element >= 0 && empty[static_cast<std::size_t>(element)];
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = rules.size(); i-- > 0;) {
      if (empty[i]) continue;
      empty[i] = std::any_of(rules[i].begin(), rules[i].end(), [&](const auto& sequence) {
        return std::all_of(sequence.begin(), sequence.end(), may_be_empty);
      });
      changed = changed || empty[i];
    }
  }
  return empty;
}

// With which rules each may begin.
Graph find_first(const std::vector<RuleShape>& rules) {
  const std::vector<bool> empty = find_empty(rules);
  Graph first(rules.size());
  for (std::size_t i = 0; i < rules.size(); ++i) {
    for (const auto& sequence : rules[i]) {
      for (std::size_t at = 0; at < sequence.size() && sequence[at] >= 0; ++at) {
        const auto to = static_cast<std::size_t>(sequence[at]);
        first[i].push_back({to, at + 1 < sequence.size()});
        if (!empty[to]) break;
      }
    }
  }
  return first;
}

// Calls `leave` for every node that can be reached from `start` and is not `seen` yet, after all
// that can be reached from it.
template <class Leave>
void walk(const Graph& graph, std::size_t start, std::vector<bool>& seen, const Leave& leave) {
  if (seen[start]) return;
  seen[start] = true;
  std::vector<std::pair<std::size_t, std::size_t>> path{{start, 0}};
  while (!path.empty()) {
    auto& [node, next] = path.back();
    if (next == graph[node].size()) {
      leave(node);
      path.pop_back();
      continue;
    }
    const std::size_t to = graph[node][next++].to;
    if (seen[to]) continue;
    seen[to] = true;
    path.emplace_back(to, 0);
  }
}

}  // namespace

std::int64_t find_left_recursion(const std::vector<RuleShape>& rules) {
  const Graph first = find_first(rules);
  Graph reversed(first.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    for (const Edge& edge : first[i]) reversed[edge.to].push_back({i, edge.more});
  }
  // The strongly connected components (Kosaraju): rules that can each begin with the other.
  std::vector<std::size_t> order;
  std::vector<bool> seen(first.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    walk(first, i, seen, [&](std::size_t node) { order.push_back(node); });
  }
  std::vector<std::size_t> component(first.size());
  seen.assign(first.size(), false);
  for (std::size_t i = order.size(); i-- > 0;) {
    walk(reversed, order[i], seen, [&](std::size_t node) { component[node] = order[i]; });
  }
  for (std::size_t i = 0; i < first.size(); ++i) {
    for (const Edge& edge : first[i]) {
      if (edge.more && component[i] == component[edge.to]) return static_cast<std::int64_t>(i);
    }
  }
  return -1;
}

std::int64_t find_long_skip(const std::vector<RuleShape>& rules, std::size_t most) {
  const std::vector<bool> empty = find_empty(rules);
  const Graph first = find_first(rules);
  // In how many places a text can begin, for each rule; at most a little more than `most`.
  std::vector<std::size_t> places(rules.size(), 1);
  const auto places_of = [&](std::int64_t element) {
    return element < 0 ? 1 : places[static_cast<std::size_t>(element)];
  };
  // Over what can be left out, from `at` on.
  const auto count = [&](const std::vector<std::int64_t>& sequence, std::size_t at) {
    std::size_t sum = 0;
    const std::size_t enough = at < sequence.size() ? most + places_of(sequence[at]) : 0;
    for (; at < sequence.size() && sum <= enough; ++at) {
      sum += places_of(sequence[at]);
      if (sequence[at] < 0 || !empty[static_cast<std::size_t>(sequence[at])]) break;
    }
    return sum;
  };
  std::vector<bool> seen(rules.size());
  for (std::size_t i = 0; i < rules.size(); ++i) {
    walk(first, i, seen, [&](std::size_t node) {
      std::size_t sum = 0;
      for (const auto& sequence : rules[node]) sum += count(sequence, 0);
      places[node] = std::max<std::size_t>(1, sum);
    });
  }
  for (std::size_t i = 0; i < rules.size(); ++i) {
    for (const auto& sequence : rules[i]) {
      for (std::size_t at = 0; at < sequence.size(); ++at) {
        if (count(sequence, at) > most + places_of(sequence[at]))
          return static_cast<std::int64_t>(i);
      }
    }
  }
  return -1;
}

}  // namespace pronk::inline v0
