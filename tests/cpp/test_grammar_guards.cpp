// What llama.cpp's grammars abort on, throw and take for ever over, asked of ours.
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "grammar.h"
#include "pronk/error.h"
#include "pronk/testing.h"

namespace {

using pronk::Grammar;
using pronk::GrammarError;
using pronk::GrammarSpec;
using pronk::Token;

// Tokens of a scripted model are the 256 bytes, then <bos>, <eos>, <eot>.
constexpr Token kEos = 257;

struct Rig {
  pronk::testing::ScriptedModel model;

  std::unique_ptr<Grammar> make(const GrammarSpec& spec) const {
    return pronk::make_grammar(*model.engine(), spec, {});
  }
  std::unique_ptr<Grammar> make(const std::string& gbnf) const {
    return make(GrammarSpec{.gbnf = gbnf, .prefix = {}, .lazy = false, .triggers = {}});
  }
  std::unique_ptr<Grammar> lazy(const std::string& trigger, bool pattern) const {
    return make(GrammarSpec{.gbnf = "root ::= \"go\" [0-9]+",
                            .prefix = {},
                            .lazy = true,
                            .triggers = {{trigger, pattern}}});
  }
};

void say(Grammar& grammar, const std::string& text) {
  for (const char c : text) grammar.accept(static_cast<unsigned char>(c));
}

}  // namespace

// llama.cpp aborts where the end is accepted before the grammar is complete.
TEST(grammar_takes_no_end_before_it_is_complete) {
  const Rig rig;
  const auto grammar = rig.make("root ::= \"ab\" [0-9]?");
  CHECK(!grammar->allows(kEos));
  CHECK_THROWS(GrammarError, grammar->accept(kEos));
  say(*grammar, "a");
  CHECK_THROWS(GrammarError, grammar->accept(kEos));
  say(*grammar, "b");
  CHECK(grammar->allows(kEos));
  grammar->accept(kEos);
  // After the end, too, whatever comes is an answer.
  CHECK_THROWS(GrammarError, grammar->accept('x'));
}

TEST(grammar_takes_no_token_that_it_forbids) {
  const Rig rig;
  const auto grammar = rig.make("root ::= [a-c] <[120]> !<[121]>");
  for (const Token token : {Token{'x'}, Token{0}, Token{255}, Token{256}, Token{258}})
    CHECK_THROWS(GrammarError, grammar->accept(token));
  say(*grammar, "bx");
  CHECK_THROWS(GrammarError, grammar->accept('y'));
  say(*grammar, "z");
  CHECK(grammar->finished());
}

TEST(grammar_takes_no_token_out_of_range) {
  const Rig rig;
  const auto grammar = rig.make("root ::= .*");
  for (const Token token : {Token{-1}, Token{259}, std::numeric_limits<Token>::max(),
                            std::numeric_limits<Token>::min()}) {
    CHECK(!grammar->allows(token));
    CHECK_THROWS(GrammarError, grammar->accept(token));
  }
}

TEST(grammar_trigger_that_is_no_pattern) {
  const Rig rig;
  for (const char* pattern : {"(", "[", "a{2", "*", "\\", "(?<x>a)", "[z-a]"})
    CHECK_THROWS(GrammarError, rig.lazy(pattern, true));
}

TEST(grammar_trigger_begins_the_grammar) {
  const Rig rig;
  for (const bool pattern : {false, true}) {
    const auto grammar = rig.lazy(pattern ? "(go)" : "go", pattern);
    say(*grammar, "we g");
    CHECK(grammar->allows('!'));
    say(*grammar, "go");
    CHECK(!grammar->allows('!'));
    CHECK(grammar->allows('7'));
  }
}

// std::regex recurses once per character, and would read all that was said for every token.
TEST(grammar_trigger_is_not_looked_for_without_end) {
  const Rig rig;
  const auto by_pattern = rig.lazy("(go)", true);
  const auto by_word = rig.lazy("go", false);
  const std::string said = std::string(5'000, 'x') + "go";
  say(*by_pattern, said);
  say(*by_word, said);
  CHECK(by_pattern->allows('!'));
  CHECK(!by_word->allows('!'));
}

// llama.cpp has no bound, and tells readings apart by comparing each with all others.
TEST(grammar_readings_are_counted_while_they_are_followed) {
  const Rig rig;
  std::string gbnf = "root ::= e\ne ::= \"a\"";
  for (int i = 0; i < 500; ++i) gbnf += " | \"a\" e \"" + std::to_string(i) + "\"";
  const auto grammar = rig.make(gbnf);
  CHECK_THROWS(GrammarError, grammar->accept('a'));
  // As many ways that come to the same are one.
  std::string same = "root ::= e\ne ::= \"b\"";
  for (int i = 0; i < 500; ++i) same += " | \"a\" e";
  const auto harmless = rig.make(same);
  say(*harmless, "aaab");
  CHECK(harmless->finished());
}

TEST(grammar_follows_tokens_by_number_and_by_text) {
  const Rig rig;
  const auto grammar = rig.make("root ::= (<[120]> | \"x\" [0-9] | !<[121]> \"z\") \"!\"");
  say(*grammar, "x");
  CHECK(grammar->allows('!'));
  CHECK(grammar->allows('7'));
  CHECK(grammar->allows('z'));
  say(*grammar, "z!");
  CHECK(grammar->finished());
}
