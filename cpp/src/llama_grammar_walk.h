// Follows the rules of a grammar as llama.cpp does, which tries every way through them: here their
// number is bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pronk/params.h"
#include "src/llama-grammar.h"

namespace pronk::inline v0 {

/// Readings of a text that a grammar may leave open at once.
constexpr std::size_t kMaxStacks = 4096;

/// One question to a grammar, about one text or all tokens of a vocabulary. A stack, as llama.cpp
/// has it, is a reading of the text so far: what is to come, its next element last. Everything
/// throws GrammarError when there are too many ways to follow.
class GrammarWalk {
 public:
  explicit GrammarWalk(const llama_grammar_rules& rules) : rules_(rules) {}

  /// The readings after a character; none where it does not follow.
  llama_grammar_stacks after(const llama_grammar_stacks& stacks, std::uint32_t code_point);
  /// Those after a token with this text, which the rules may ask for by its number, too.
  llama_grammar_stacks after(const llama_grammar_stacks& stacks, Token token,
                             std::span<const std::uint32_t> code_points);
  /// Those of `candidates` that follow in none of the readings.
  llama_grammar_candidates reject(const llama_grammar_stacks& stacks,
                                  llama_grammar_candidates candidates);

 private:
  llama_grammar_candidates reject(const llama_grammar_stack& stack,
                                  const llama_grammar_candidates& candidates);
  llama_grammar_stacks advance(llama_grammar_stack stack);
  void spend(std::size_t work);

  const llama_grammar_rules& rules_;
  std::size_t left_ = std::size_t{1} << 22;  // of some hundred nanoseconds each
};

/// Whether the rules ask for a token by its number here.
bool is_token(const llama_grammar_element& element);
bool matches_token(const llama_grammar_element& element, Token token);

}  // namespace pronk::inline v0
