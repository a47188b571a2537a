// Languages of numbers against arithmetic.
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "automaton_rules.h"
#include "check.h"
#include "number_language.h"

namespace {

using pronk::Bound;
using pronk::Decimal;
using pronk::NumberLimits;

NumberLimits limits(const std::string& low, bool low_out, const std::string& high, bool high_out) {
  NumberLimits result;
  if (!low.empty()) result.low = Bound{Decimal(low), low_out};
  if (!high.empty()) result.high = Bound{Decimal(high), high_out};
  return result;
}

bool has(const pronk::Dfa& dfa, const std::string& text) {
  return dfa.matches(std::u32string(text.begin(), text.end()));
}

bool is_json(const std::string& text) {
  std::size_t i = text[0] == '-' ? 1 : 0;
  if (i == text.size()) return false;
  if (text[i] == '0' && i + 1 < text.size() && text[i + 1] != '.') return false;
  return text[i] != '.' && text.back() != '.';
}

TEST(integers_between_bounds) {
  const std::vector<long> bounds = {-1000, -120, -101, -100, -99, -11, -10, -9,  -5,  -1,  0,
                                    1,     5,    9,    10,   11,  99,  100, 101, 105, 999, 1004};
  for (const long low : bounds) {
    for (const long high : bounds) {
      const auto both =
          pronk::integers_within(limits(std::to_string(low), false, std::to_string(high), false));
      const auto from = pronk::integers_within(limits(std::to_string(low), false, "", false));
      const auto to = pronk::integers_within(limits("", false, std::to_string(high), true));
      const auto sevens = pronk::integers_within(
          limits(std::to_string(low), false, std::to_string(high), false), 7);
      CHECK_EQ(both.states.empty(), low > high);
      for (long n = -1300; n <= 1300; ++n) {
        const std::string text = std::to_string(n);
        bool right = CHECK_EQ(has(both, text), n >= low && n <= high);
        right = CHECK_EQ(has(from, text), n >= low) && right;
        right = CHECK_EQ(has(to, text), n < high) && right;
        right = CHECK_EQ(has(sevens, text), n >= low && n <= high && n % 7 == 0) && right;
        if (!right) {
          check::fail({__FILE__, __LINE__},
                      text + " in " + std::to_string(low) + ".." + std::to_string(high));
          return;
        }
      }
      for (const std::string text : {"", "-", "00", "01", "-01", "1.0", "+1", "--1"}) {
        CHECK(!has(both, text));
        CHECK(!has(from, text));
        CHECK(!has(to, text));
      }
    }
  }
}

TEST(large_integers) {
  const auto ids =
      pronk::integers_within(limits("-9223372036854775808", false, "9223372036854775807", false));
  CHECK(has(ids, "9223372036854775807"));
  CHECK(!has(ids, "9223372036854775808"));
  CHECK(has(ids, "-9223372036854775808"));
  CHECK(!has(ids, "-9223372036854775809"));
  const auto large = pronk::integers_within(limits("100000000000000000000", false, "", false));
  CHECK(has(large, "100000000000000000001"));
  CHECK(!has(large, "99999999999999999999"));
  const auto from = pronk::integers_within(limits("1e3", true, "", false));
  CHECK(!has(from, "1000"));
  CHECK(has(from, "1001"));
  CHECK(has(from, "9999999999999999"));
  CHECK(!has(from, "99999999999999999"));
  const auto half = pronk::integers_within(limits("1.5", false, "2.5", true));
  CHECK(!has(half, "1"));
  CHECK(has(half, "2"));
  CHECK(!has(half, "3"));
  CHECK(pronk::integers_within(limits("1.2", false, "1.8", false)).states.empty());
}

TEST(numbers_between_bounds) {
  std::mt19937_64 random(check::seed());
  const std::vector<std::string> bounds = {
      "",           "0",     "1",     "-1",     "0.5",
      "-0.5",       "0.1",   "1.25",  "10",     "99.99",
      "-12.5",      "1e-7",  "1e3",   "-1e-20", "0.30000000000000004",
      "123456.789", "1e300", "-1e300"};
  std::size_t n_within = 0;
  for (const std::string& low : bounds) {
    for (const std::string& high : bounds) {
      for (const bool out : {false, true}) {
        const NumberLimits range = limits(low, out, high, out);
        const auto dfa = pronk::numbers_within(range);
        for (int i = 0; i < 120; ++i) {
          // Near a bound, or anywhere.
          double value = 0;
          const std::string& near = i % 2 == 0 ? low : high;
          if (!near.empty()) value = std::strtod(near.c_str(), nullptr);
          if (std::abs(value) > 1e15) value = 0;
          const double size = std::pow(10, static_cast<double>(random() % 8) - 4);
          value += (static_cast<double>(random() % 2001) - 1000) / 1000 * size;
          char buffer[64];
          std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(random() % 7), value);
          const std::string text = buffer;
          const double read = std::strtod(buffer, nullptr);
          const double from = low.empty() ? -INFINITY : std::strtod(low.c_str(), nullptr);
          const double to = high.empty() ? INFINITY : std::strtod(high.c_str(), nullptr);
          const bool within = out ? (low.empty() || read > from) && (high.empty() || read < to)
                                  : read >= from && read <= to;
          n_within += within ? 1 : 0;
          const bool minus_zero = read == 0 && text[0] == '-';
          if (minus_zero) continue;
          if (!CHECK_EQ(has(dfa, text), within && is_json(text))) {
            check::fail({__FILE__, __LINE__}, text + " in " + low + ".." + high);
            return;
          }
        }
        for (const std::string text : {"", "-", ".5", "1.", "01", "1e3", "-.5", "0x1"}) {
          CHECK(!has(dfa, text));
        }
      }
    }
  }
  CHECK(n_within > 1000);
}

TEST(a_number_beside_an_excluded_bound_does_not_round_to_it) {
  for (const std::string bound : {"0.1", "1000.5", "-2.25", "123456789.5", "1e20",
                                  "-1234567890123456789.5", "99999999999999999999"}) {
    const auto above = pronk::numbers_within(limits(bound, true, "", false));
    const auto below = pronk::numbers_within(limits("", false, bound, true));
    const double limit = std::strtod(bound.c_str(), nullptr);
    std::vector<std::string> texts = {"99999999999999999999", "100000000000000000001",
                                      "-1234567890123456790", "-1234567890123456788.9"};
    for (int zeros = 0; zeros < 16 && bound.find('e') == std::string::npos; ++zeros) {
      texts.push_back(bound + (bound.find('.') == std::string::npos ? "." : "") +
                      std::string(static_cast<std::size_t>(zeros), '0') + "1");
    }
    for (const std::string& text : texts) {
      const double value = std::strtod(text.c_str(), nullptr);
      if (has(above, text) && !CHECK(value > limit)) CHECK_EQ(text, bound);
      if (has(below, text)) CHECK(value < limit);
    }
  }
}

TEST(numbers_as_text) {
  CHECK(pronk::compare(Decimal("1e3"), Decimal("1000.0")) == 0);
  CHECK(pronk::compare(Decimal("-1.5"), Decimal("-1.4")) < 0);
  CHECK(pronk::compare(Decimal("5e-324"), Decimal("0")) > 0);
  CHECK(pronk::compare(Decimal("-0.0"), Decimal("0")) == 0);
  CHECK(pronk::compare(Decimal("9007199254740993"), Decimal("9007199254740992")) > 0);
  CHECK_EQ(Decimal("-1.5").scaled(0).digits, "2");
  CHECK_EQ(Decimal("1.5").scaled(0).digits, "1");
  CHECK_EQ(Decimal("1.5").scaled(2).digits, "150");
  CHECK_EQ(Decimal("-2.5e1").rounded(), -25.0);
}

TEST(rules_of_an_automaton) {
  using pronk::Regex;
  const auto rules = [](const Regex& regex, pronk::Spelling spelling) {
    return pronk::rules_of(
        pronk::intersect({{pronk::nfa_of(regex), false}}, {{1, pronk::CodePoints::kLast}}), "r",
        spelling);
  };
  CHECK_EQ(rules(Regex::literal(U"a1"), pronk::Spelling::kPlain),
           "r ::= r-0\nr-0 ::= [a] r-1\nr-1 ::= [1]\n");
  CHECK_EQ(rules(Regex::repeat(Regex::literal(U"-"), 0), pronk::Spelling::kPlain),
           "r ::= r-0\nr-0 ::= | [\\x2d] r-1\nr-1 ::= | [\\x2d] r-1\n");
  CHECK_EQ(rules(Regex::literal(U"\"\n"), pronk::Spelling::kJsonString),
           "r ::= \"\\\"\" r-0 \"\\\"\"\nr-0 ::= r-c1 r-1\nr-1 ::= r-c2\n"
           "r-c1 ::= [\\\\] [\\x22]\nr-c2 ::= [\\\\] [n]\n");
  CHECK_EQ(rules(Regex::of({{1, 2}, {0xE9, 0xE9}}), pronk::Spelling::kJsonString),
           "r ::= \"\\\"\" r-0 \"\\\"\"\nr-0 ::= r-c1\n"
           "r-c1 ::= [\\xe9] | \"\\\\u000\" [12]\n");
  CHECK_EQ(rules(Regex::sequence({}), pronk::Spelling::kJsonString),
           "r ::= \"\\\"\" r-0 \"\\\"\"\nr-0 ::= \"\"\n");
}

}  // namespace
