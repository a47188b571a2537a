// Patterns against the standard library's regular expressions, over every short text.
#include <functional>
#include <regex>
#include <string>
#include <vector>

#include "automaton.h"
#include "check.h"
#include "code_points.h"
#include "schema_pattern.h"

namespace {

using pronk::CodePoints;
using pronk::Dfa;
using pronk::PatternError;

Dfa dfa_of(const std::string& pattern) {
  const pronk::Pattern read = pronk::read_pattern(pattern);
  return pronk::intersect(read.terms, read.alphabet);
}

bool matches(const std::string& pattern, const std::string& text) {
  return dfa_of(pattern).matches(pronk::code_points_of(text));
}

void for_each_text(const std::string& alphabet, std::size_t longest,
                   const std::function<void(const std::string&)>& function) {
  std::vector<std::string> texts = {""};
  for (std::size_t i = 0; i < texts.size(); ++i) {
    function(texts[i]);
    if (texts[i].size() == longest) continue;
    for (const char c : alphabet) texts.push_back(texts[i] + c);
  }
}

TEST(patterns_match_what_the_standard_library_matches) {
  const std::vector<std::string> patterns = {"",
                                             "a",
                                             "^a",
                                             "a$",
                                             "^a$",
                                             "^a*$",
                                             "^$",
                                             "ab",
                                             "^(a|b)+$",
                                             "^(?:ab|1)?$",
                                             "^a|b$",
                                             "(^a|b)$",
                                             "^a{2}$",
                                             "^a{1,2}$",
                                             "^a{2,}$",
                                             "^(ab){0,2}$",
                                             "^[ab]{2}$",
                                             "^[^a]$",
                                             "^[^ab\"]*$",
                                             "^.$",
                                             "^.*$",
                                             "^\\d+$",
                                             "^\\D+$",
                                             "^\\w+$",
                                             "^\\W$",
                                             "^a*?b$",
                                             "^a+?$",
                                             "^(a?){3}$",
                                             "^\\\\$",
                                             "^\"$",
                                             "^[\"\\\\]$",
                                             "^[!-.]+$",
                                             "^\\x61$",
                                             "^\\u0061b$",
                                             "\\bab\\b",
                                             "a\\B",
                                             "\\B1",
                                             "^(?=.*a).*b",
                                             "^(?!a).*$",
                                             "^(?!.*\")a",
                                             "^[a-]$",
                                             "^[-a]$",
                                             "^[\\w-]+$",
                                             "^[^\\d]+$",
                                             "^[^\\w]+$",
                                             "^a\\-b$",
                                             "^(a(b(1)))$",
                                             "(a|b)*1",
                                             "^((a|b)?1)+$",
                                             "a$|^b",
                                             "^(?:a|)b$",
                                             "^{a$",
                                             "^a{,$x",
                                             "(?:)",
                                             "^(a*)*$",
                                             "^(a|ab)(1|b1)$",
                                             "\"",
                                             "^[\\]a]$",
                                             "^\\.?-$"};
  std::size_t n = 0;
  for (const std::string& pattern : patterns) {
    Dfa dfa;
    try {
      dfa = dfa_of(pattern);
    } catch (const PatternError&) {
      CHECK_EQ(pattern, "^a{,$x");
      continue;
    }
    // What this one takes as text, the standard library refuses.
    const std::string theirs = pattern == "^{a$" ? "^\\{a$" : pattern;
    const std::regex reference(theirs);
    for_each_text("ab1-\"\\", 4, [&](const std::string& text) {
      const bool expected = std::regex_search(text, reference);
      if (!CHECK_EQ(dfa.matches(pronk::code_points_of(text)), expected)) {
        check::fail({__FILE__, __LINE__}, "pattern " + pattern + " on " + check::show(text));
      }
      ++n;
    });
  }
  CHECK(n > 50000);
}

TEST(patterns_mean_what_all_readers_agree_on) {
  // Python: digits and word characters beyond ASCII; a line end after `$`. JavaScript: line ends.
  CHECK(!matches("^\\d$", "\u0663"));
  CHECK(!matches("^\\D$", "\u0663"));
  CHECK(!matches("^[^\\d]$", "\u0663"));
  CHECK(!matches("^\\w$", "\u00e9"));
  CHECK(!matches("^\\W$", "\u00e9"));
  CHECK(!matches("^\\S$", "\u00a0"));
  CHECK(!matches("^\\s$", "\u00a0"));
  CHECK(!matches("^a$", "a\n"));
  CHECK(!matches("^.$", "\n"));
  CHECK(!matches("^.$", "\r"));
  CHECK(!matches("^.$", "\u2028"));
  CHECK(matches("^[^a]$", "\n"));
  CHECK(matches("^.$", "\u65e5"));
  CHECK(matches("^\u65e5{2}$", "\u65e5\u65e5"));
  CHECK(!matches("^\u65e5{2}$", "\u65e5"));
  CHECK(matches("^[\u00e0-\u00fc]+$", "\u00e9\u00e8"));
  CHECK(matches("^\\uD83D\\uDE42$", "\U0001f642"));
  CHECK(matches("^\\u{1F642}$", "\U0001f642"));
  CHECK(matches("^.$", "\U0001f642"));
  CHECK(matches("^\\t\\n\\/$", "\t\n/"));
  CHECK(matches("(?i)^on$", "oN"));
  CHECK(matches("(?i)^[a-f]$", "F"));
  CHECK(!matches("(?i)^[^k]$", "\u212a"));
  CHECK(matches("(?s)^.$", "\n"));
  CHECK(matches("^(?<year>[0-9]{4})$", "2024"));
  CHECK(matches("^(?P<year>[0-9]{4})$", "2024"));
  CHECK(!matches("", std::string("\0", 1)));
}

TEST(patterns_that_cannot_be_followed_are_named) {
  struct Case {
    std::string pattern, part;
    bool malformed;
  };
  const std::vector<Case> cases = {
      {"((", "')'", true},
      {"a)", "')'", true},
      {"[a", "']'", true},
      {"*a", "nothing to repeat", true},
      {"a**", "quantifiers", true},
      {"a{3,2}", "larger", true},
      {"[b-a]", "range", true},
      {"\\", "'\\'", true},
      {"\\xZZ", "hexadecimal", true},
      {"\\ud800", "character", true},
      {"(a)\\1", "reference", false},
      {"a(?=b)", "lookahead", false},
      {"^(?=a)b|c", "lookahead", false},
      {"(?<=a)b", "lookbehind", false},
      {"(?>a)", "group", false},
      {"(?m)^a$", "flags", false},
      {"a++", "possessive", false},
      {"\\p{L}", "escape", false},
      {"\\Aa", "escape", false},
      {"[[:alpha:]]", "[:", false},
      {"[]a]", "']'", false},
      {"a{,3}", "'{,'", false},
      {"^*", "assertion", false},
      {"a{3000}", "2000", false},
      {std::string(200, '('), "nested", false},
  };
  for (const auto& each : cases) {
    try {
      (void)dfa_of(each.pattern);
      check::fail({__FILE__, __LINE__}, "no error for " + each.pattern);
    } catch (const PatternError& error) {
      CHECK(error.got.find(each.part) != std::string::npos || error.got == each.pattern);
      if (error.got.find(each.part) == std::string::npos) CHECK_EQ(error.got, each.part);
      CHECK(error.got.find("at character") != std::string::npos);
      CHECK_EQ(error.malformed, each.malformed);
    }
  }
  CHECK_THROWS(pronk::AutomatonTooLarge, dfa_of("^(a|b)*a(a|b){14}$"));
  CHECK_THROWS(pronk::AutomatonTooLarge, dfa_of("^((a{100}){100}){100}$"));
}

TEST(every_state_of_an_automaton_leads_to_an_end) {
  CHECK(dfa_of("^a$b").states.empty());
  CHECK(dfa_of("^[^\\w\\W]$").states.empty());
  for (const std::string pattern : {"^ab|cd$", "a{3}", "^(?!ab).{2}$", "\\bx\\b"}) {
    for (const auto& state : dfa_of(pattern).states) {
      CHECK(state.accepting || !state.edges.empty());
      // One way for each character.
      CodePoints seen;
      for (const auto& edge : state.edges) {
        CHECK((seen & edge.set).empty());
        seen = seen | edge.set;
      }
    }
  }
}

TEST(sets_of_characters) {
  const CodePoints set = {{'a', 'c'}, {'d', 'f'}, {'x', 'x'}};
  CHECK_EQ(set.ranges().size(), 2U);
  CHECK(set.contains('e'));
  CHECK(!set.contains('g'));
  CHECK((set & ~set).empty());
  CHECK(~~set == set);
  CHECK((set | ~set) == (CodePoints{{0, CodePoints::kLast}}));
  CHECK((set & CodePoints{{'c', 'x'}}) == (CodePoints{{'c', 'f'}, {'x', 'x'}}));
}

TEST(readers_disagree_whether_the_empty_text_has_a_boundary) {
  // ECMA-262 finds \B in it, Python before 3.14 does not.
  CHECK(!matches("\\B", ""));
  CHECK(!matches("^(?!\\B)", ""));
  CHECK(!matches("\\b", ""));
  CHECK(matches("\\B", "ab"));
  CHECK(matches("\\B", "-"));
}

}  // namespace
