#include "llama_grammar_walk.h"

#include <set>
#include <string>
#include <utility>

#include "pronk/error.h"

namespace pronk::inline v0 {
namespace {

// A look at a candidate costs so much less than a step through the rules.
constexpr std::size_t kCandidatesPerStep = 512;
// Copying a stack costs as much as a step from this length on.
constexpr std::size_t kElementsPerStep = 16;

[[noreturn]] void refuse_readings(std::size_t most) {
  throw GrammarError("grammar: got rules that allow more than " + std::to_string(most) +
                     " readings of the text at once, expected fewer, make them less ambiguous");
}

bool ends(const llama_grammar_element* at) {
  return at->type == LLAMA_GRETYPE_END || at->type == LLAMA_GRETYPE_ALT;
}

bool is_positive(const llama_grammar_element* at) { return at->type != LLAMA_GRETYPE_CHAR_NOT; }

struct Match {
  bool found = false;
  const llama_grammar_element* next = nullptr;
};

// Whether some character from `low` to `high` is in the set at `at`. Of a set of what may not come,
// that is not said: one of them that may not is enough for none, as llama.cpp has it.
Match match(const llama_grammar_element* at, std::uint32_t low, std::uint32_t high) {
  const bool positive = is_positive(at);
  bool found = false;
  do {
    if (at[1].type == LLAMA_GRETYPE_CHAR_RNG_UPPER) {
      found = found || (at->value <= high && low <= at[1].value);
      at += 2;
    } else {
      found =
          found || at->type == LLAMA_GRETYPE_CHAR_ANY || (low <= at->value && at->value <= high);
      at += 1;
    }
  } while (at->type == LLAMA_GRETYPE_CHAR_ALT);
  return {found == positive, at};
}

// Whether a character that begins with the bits of `partial` may follow.
bool match_partial(const llama_grammar_element* at, llama_partial_utf8 partial) {
  // No UTF-8, or a character in more bytes than it needs.
  if (partial.n_remain < 0 || (partial.n_remain == 1 && partial.value < 2)) return false;
  const int shift = partial.n_remain * 6;
  std::uint32_t low = partial.value << shift;
  const std::uint32_t high = low | ((std::uint32_t{1} << shift) - 1);
  if (low == 0 && partial.n_remain == 2) low = 1 << 11;
  if (low == 0 && partial.n_remain == 3) low = 1 << 16;
  return match(at, low, high).found;
}

llama_grammar_stack with_next(const llama_grammar_stack& stack, const llama_grammar_element* next) {
  llama_grammar_stack result(stack.begin(), stack.end() - 1);
  if (!ends(next)) result.push_back(next);
  return result;
}

}  // namespace

bool is_token(const llama_grammar_element& element) {
  return element.type == LLAMA_GRETYPE_TOKEN || element.type == LLAMA_GRETYPE_TOKEN_NOT;
}

bool matches_token(const llama_grammar_element& element, Token token) {
  const bool same = element.value == static_cast<std::uint32_t>(token);
  return element.type == LLAMA_GRETYPE_TOKEN ? same : !same;
}

void GrammarWalk::spend(std::size_t work) {
  if (work > left_) {
    throw GrammarError(
        "grammar: got rules with too many ways to follow the text, expected fewer, make them less "
        "ambiguous");
  }
  left_ -= work;
}

// From what is to come to the characters and tokens that it may begin with.
llama_grammar_stacks GrammarWalk::advance(llama_grammar_stack stack) {
  llama_grammar_stacks result;
  if (stack.empty() || stack.back()->type != LLAMA_GRETYPE_RULE_REF) {
    spend(1);
    result.push_back(std::move(stack));
    return result;
  }
  llama_grammar_stacks todo{std::move(stack)};
  std::set<llama_grammar_stack> seen;
  while (!todo.empty()) {
    const auto [at, fresh] = seen.insert(std::move(todo.back()));
    todo.pop_back();
    if (!fresh) continue;
    spend(1 + at->size() / kElementsPerStep);
    if (at->empty() || at->back()->type != LLAMA_GRETYPE_RULE_REF) {
      result.push_back(*at);
      continue;
    }
    const llama_grammar_element* const reference = at->back();
    const llama_grammar_element* alternative = rules_[reference->value].data();
    for (;; ++alternative) {
      llama_grammar_stack next = with_next(*at, reference + 1);
      if (!ends(alternative)) next.push_back(alternative);
      todo.push_back(std::move(next));
      while (!ends(alternative)) ++alternative;
      if (alternative->type == LLAMA_GRETYPE_END) break;
    }
  }
  return result;
}

llama_grammar_stacks GrammarWalk::after(const llama_grammar_stacks& stacks,
                                        std::uint32_t code_point) {
  std::set<llama_grammar_stack> known;
  llama_grammar_stacks result;
  for (const llama_grammar_stack& stack : stacks) {
    if (stack.empty() || is_token(*stack.back())) continue;
    const Match matched = match(stack.back(), code_point, code_point);
    if (!matched.found) continue;
    for (llama_grammar_stack& next : advance(with_next(stack, matched.next))) {
      if (!known.insert(next).second) continue;
      result.push_back(std::move(next));
      if (result.size() > kMaxStacks) refuse_readings(kMaxStacks);
    }
  }
  return result;
}

llama_grammar_stacks GrammarWalk::after(const llama_grammar_stacks& stacks, Token token,
                                        std::span<const std::uint32_t> code_points) {
  llama_grammar_stacks by_text, result;
  std::set<llama_grammar_stack> known;
  const auto add = [&](llama_grammar_stacks more) {
    for (llama_grammar_stack& stack : more) {
      if (known.insert(stack).second) result.push_back(std::move(stack));
    }
    if (result.size() > kMaxStacks) refuse_readings(kMaxStacks);
  };
  for (const llama_grammar_stack& stack : stacks) {
    if (stack.empty()) continue;
    if (!is_token(*stack.back())) {
      by_text.push_back(stack);
    } else if (matches_token(*stack.back(), token)) {
      add(advance(with_next(stack, stack.back() + 1)));
    }
  }
  for (const std::uint32_t code_point : code_points) by_text = after(by_text, code_point);
  add(std::move(by_text));
  return result;
}

llama_grammar_candidates GrammarWalk::reject(const llama_grammar_stacks& stacks,
                                             llama_grammar_candidates candidates) {
  for (const llama_grammar_stack& stack : stacks) {
    if (candidates.empty()) break;
    candidates = reject(stack, candidates);
  }
  return candidates;
}

llama_grammar_candidates GrammarWalk::reject(const llama_grammar_stack& stack,
                                             const llama_grammar_candidates& candidates) {
  spend(1 + candidates.size() / kCandidatesPerStep);
  llama_grammar_candidates rejected, next;
  rejected.reserve(candidates.size());
  const auto ended = [](const llama_grammar_candidate& each) { return *each.code_points == 0; };
  if (stack.empty() || is_token(*stack.back())) {
    for (const llama_grammar_candidate& each : candidates) {
      const bool whole = ended(each) && each.partial_utf8.n_remain == 0;
      const bool asked_for =
          !stack.empty() && !ended(each) && matches_token(*stack.back(), each.id);
      if (!whole && !asked_for) rejected.push_back(each);
    }
    return rejected;
  }
  next.reserve(candidates.size());
  for (const llama_grammar_candidate& each : candidates) {
    if (ended(each)) {
      const bool half = each.partial_utf8.n_remain != 0;
      if (half && !match_partial(stack.back(), each.partial_utf8)) rejected.push_back(each);
    } else if (match(stack.back(), *each.code_points, *each.code_points).found) {
      next.push_back({each.index, each.code_points + 1, each.partial_utf8, each.id});
    } else {
      rejected.push_back(each);
    }
  }
  if (next.empty()) return rejected;
  const llama_grammar_element* const rest = match(stack.back(), 0, 0).next;
  for (const llama_grammar_candidate& each :
       reject(advance(with_next(stack, rest)), std::move(next))) {
    rejected.push_back({each.index, each.code_points - 1, each.partial_utf8, each.id});
  }
  return rejected;
}

}  // namespace pronk::inline v0
