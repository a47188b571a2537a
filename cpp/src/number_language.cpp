#include "number_language.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

namespace pronk::inline v0 {
namespace {

constexpr std::size_t kDigits = 16;          // as llama.cpp's grammars have them
constexpr std::size_t kMostDigits = 40;      // of a bound
constexpr std::size_t kMostStates = 800;     // of multiples
constexpr std::size_t kDistinctDigits = 15;  // that a double tells apart

using Integer = Decimal::Scaled;

// By length, then by digits.
bool less_digits(const std::string& a, const std::string& b) {
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

bool less(const Integer& a, const Integer& b) {
  if (a.negative != b.negative) return a.negative;
  return a.negative ? less_digits(b.digits, a.digits) : less_digits(a.digits, b.digits);
}

std::string trimmed(std::string digits) {
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  return digits.empty() ? "0" : digits;
}

std::string incremented(std::string digits) {
  std::size_t i = digits.size();
  while (i > 0 && digits[i - 1] == '9') digits[--i] = '0';
  if (i == 0) return "1" + digits;
  ++digits[i - 1];
  return digits;
}

// Of more than 0.
std::string decremented(std::string digits) {
  std::size_t i = digits.size();
  while (digits[i - 1] == '0') digits[--i] = '9';
  --digits[i - 1];
  return trimmed(std::move(digits));
}

Integer next(const Integer& a) {
  if (!a.negative) return {false, incremented(a.digits), true};
  std::string digits = decremented(a.digits);
  const bool negative = digits != "0";
  return {negative, std::move(digits), true};
}

Integer previous(const Integer& a) {
  if (a.negative || a.digits == "0") return {true, incremented(a.digits), true};
  return {false, decremented(a.digits), true};
}

// ---- digits as regular expressions ----

Regex digit(char first, char last) {
  return Regex::of({{static_cast<char32_t>(first), static_cast<char32_t>(last)}});
}

Regex some_digits(std::size_t min, std::size_t max) {
  return Regex::repeat(digit('0', '9'), min, max);
}

Regex text(std::string_view ascii) {
  return Regex::literal(std::u32string(ascii.begin(), ascii.end()));
}

bool all_zeros(std::string_view digits) {
  return digits.find_first_not_of('0') == std::string_view::npos;
}

// Digits of one length between two others, or with `open_end` any digits that would be, were zeros
// put after them.
Regex between(std::string_view low, std::string_view high, bool open_end) {
  if (low.empty()) return Regex::sequence({});
  const std::string_view low_rest = low.substr(1);
  const std::string_view high_rest = high.substr(1);
  const std::string zeros(low_rest.size(), '0');
  const std::string nines(low_rest.size(), '9');
  std::vector<Regex> ways;
  const auto way = [&](char first, char last, Regex rest) {
    if (first <= last) ways.push_back(Regex::sequence({digit(first, last), std::move(rest)}));
  };
  if (open_end && all_zeros(low)) ways.push_back(Regex::sequence({}));
  if (all_zeros(low) && high.find_first_not_of('9') == std::string_view::npos) {
    return some_digits(open_end ? 0 : low.size(), low.size());
  }
  if (low[0] == high[0]) {
    way(low[0], low[0], between(low_rest, high_rest, open_end));
  } else {
    way(low[0], low[0], between(low_rest, nines, open_end));
    way(static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1),
        some_digits(open_end ? 0 : low_rest.size(), low_rest.size()));
    way(high[0], high[0], between(zeros, high_rest, open_end));
  }
  return Regex::either(std::move(ways));
}

// Numbers without a sign and without leading zeros; none where low is above high.
Regex naturals(const std::string& low, const std::string& high) {
  std::vector<Regex> ways;
  for (std::size_t n = low.size(); n <= high.size(); ++n) {
    std::string from(n, '0');
    from[0] = '1';
    if (n == low.size()) from = low;
    const std::string to = n == high.size() ? high : std::string(n, '9');
    if (from <= to) ways.push_back(between(from, to, false));
  }
  return Regex::either(std::move(ways));
}

// The integers between two, by their sign: `of` makes those without one.
template <class Of>
Regex with_sign(const Integer& low, const Integer& high, const Of& of) {
  std::vector<Regex> ways;
  if (!high.negative) ways.push_back(of(low.negative ? "0" : low.digits, high.digits));
  if (low.negative) {
    ways.push_back(Regex::sequence({text("-"), of(high.negative ? high.digits : "0", low.digits)}));
  }
  return Regex::either(std::move(ways));
}

// Within the limits, as multiples of 10^-n.
std::pair<Integer, Integer> range(const NumberLimits& limits, std::size_t n,
                                  std::size_t n_digits = kDigits) {
  std::optional<Integer> low, high;
  if (limits.low) {
    low = limits.low->value.scaled(n);
    if (!low->exact || limits.low->exclusive) low = next(*low);
  }
  if (limits.high) {
    high = limits.high->value.scaled(n);
    if (high->exact && limits.high->exclusive) high = previous(*high);
  }
  std::size_t most = n_digits + n;
  for (const auto& bound : {low, high}) {
    if (bound) most = std::max(most, std::min(bound->digits.size(), kMostDigits));
  }
  const Integer last{false, std::string(most, '9'), true};
  const Integer first{true, last.digits, true};
  return {low && less(first, *low) ? *low : first, high && less(*high, last) ? *high : last};
}

// A number of few digits above a large one, or below, that is another one as a double too.
Bound beside(const Decimal& value, bool above) {
  const Integer whole = value.scaled(0);
  const std::size_t n_zeros = whole.digits.size() - kDistinctDigits;
  std::string digits = whole.digits.substr(0, kDistinctDigits);
  digits = above != whole.negative ? incremented(incremented(std::move(digits)))
                                   : decremented(std::move(digits));
  return {Decimal((whole.negative ? "-" : "") + digits + "e" + std::to_string(n_zeros)), false};
}

// With a point before the last `n` digits of `low` and `high`.
Regex with_point(const std::string& low, const std::string& high, std::size_t n) {
  const auto split = [&](const std::string& digits) {
    const std::string padded =
        std::string(digits.size() > n ? 0 : n + 1 - digits.size(), '0') + digits;
    return std::pair{padded.substr(0, padded.size() - n), padded.substr(padded.size() - n)};
  };
  if (less_digits(high, low)) return Regex::either({});
  const auto [low_integer, low_part] = split(low);
  const auto [high_integer, high_part] = split(high);
  const std::string zeros(n, '0');
  const std::string nines(n, '9');
  const auto number = [&](Regex integer, const std::string& from, const std::string& to) {
    std::vector<Regex> ends;
    if (all_zeros(from)) ends.push_back(Regex::sequence({}));
    ends.push_back(Regex::sequence({text("."), between(from, to, true)}));
    return Regex::sequence({std::move(integer), Regex::either(std::move(ends))});
  };
  if (low_integer == high_integer) return number(text(low_integer), low_part, high_part);
  std::vector<Regex> ways;
  ways.push_back(number(text(low_integer), low_part, nines));
  const std::string second = incremented(low_integer);
  const std::string last = decremented(high_integer);
  if (!less_digits(last, second)) ways.push_back(number(naturals(second, last), zeros, nines));
  ways.push_back(number(text(high_integer), zeros, high_part));
  return Regex::either(std::move(ways));
}

// The integers that `divisor` divides.
Nfa multiples_of(unsigned divisor) {
  Nfa nfa;
  // The start, one after a sign, and one for each remainder.
  for (unsigned i = 0; i < divisor + 2; ++i) nfa.add_node();
  const std::uint32_t sign = nfa.add_set(CodePoints::of('-'));
  nfa.nodes[0].steps.push_back({1, sign});
  for (char c = '0'; c <= '9'; ++c) {
    const std::uint32_t set = nfa.add_set(CodePoints::of(static_cast<char32_t>(c)));
    const auto value = static_cast<unsigned>(c - '0');
    for (const std::uint32_t begin : {0U, 1U}) {
      nfa.nodes[begin].steps.push_back({2 + value % divisor, set});
    }
    for (unsigned r = 0; r < divisor; ++r) {
      nfa.nodes[2 + r].steps.push_back({2 + (10 * r + value) % divisor, set});
    }
  }
  nfa.accepts[2] = true;
  return nfa;
}

const CodePoints& number_characters() {
  static const CodePoints all = {{'0', '9'}, {'-', '-'}, {'.', '.'}};
  return all;
}

}  // namespace

Decimal::Decimal(std::string_view number) {
  std::size_t i = 0;
  if (number[0] == '-') {
    negative_ = true;
    ++i;
  }
  std::string digits;
  bool fraction = false;
  for (; i < number.size() && number[i] != 'e' && number[i] != 'E'; ++i) {
    if (number[i] == '.') {
      fraction = true;
      continue;
    }
    digits += number[i];
    if (fraction) --exponent_;
  }
  if (i < number.size()) {
    ++i;
    if (i < number.size() && number[i] == '+') ++i;
    long exponent = 0;
    std::from_chars(number.data() + i, number.data() + number.size(), exponent);
    exponent_ += exponent;
  }
  digits_ = trimmed(std::move(digits));
  if (digits_ == "0") {
    negative_ = false;
    exponent_ = 0;
  }
}

Decimal::Scaled Decimal::scaled(std::size_t n) const {
  const long shift = exponent_ + static_cast<long>(n);
  Scaled result{negative_, digits_, true};
  if (shift >= 0) {
    if (!is_zero()) result.digits.append(static_cast<std::size_t>(shift), '0');
    return result;
  }
  const auto cut = static_cast<std::size_t>(-shift);
  const std::size_t kept = digits_.size() > cut ? digits_.size() - cut : 0;
  result.exact = all_zeros(std::string_view(digits_).substr(kept));
  result.digits = trimmed(digits_.substr(0, kept));
  if (result.digits == "0") result.negative = false;
  // Down, not towards zero.
  if (!result.exact && negative_) {
    result.negative = true;
    result.digits = incremented(result.digits);
  }
  return result;
}

double Decimal::rounded() const {
  return std::strtod(((negative_ ? "-" : "") + digits_ + "e" + std::to_string(exponent_)).c_str(),
                     nullptr);
}

std::size_t Decimal::n_integer_digits() const {
  const long n = static_cast<long>(digits_.size()) + exponent_;
  return is_zero() || n < 0 ? 0 : static_cast<std::size_t>(n);
}

int compare(const Decimal& a, const Decimal& b) {
  // Doubles have at most 1074 places after the point.
  constexpr std::size_t kPlaces = 1100;
  const Integer left = a.scaled(kPlaces);
  const Integer right = b.scaled(kPlaces);
  return less(left, right) ? -1 : less(right, left) ? 1 : 0;
}

Dfa integers_within(const NumberLimits& limits, unsigned multiple_of) {
  // Each digit takes a state for each remainder.
  const std::size_t n_digits = std::clamp<std::size_t>(kMostStates / multiple_of, 4, kDigits);
  const auto [low, high] = range(limits, 0, n_digits);
  if (less(high, low)) return {};
  std::vector<Term> terms;
  terms.push_back({nfa_of(with_sign(low, high, naturals)), false});
  if (multiple_of > 1) terms.push_back({multiples_of(multiple_of), false});
  return intersect(terms, number_characters());
}

Dfa numbers_within(const NumberLimits& given) {
  // Next to a bound that does not belong to them, a double must not round to it.
  NumberLimits limits = given;
  std::size_t n = kDigits;
  for (auto* bound : {&limits.low, &limits.high}) {
    if (!*bound || !(*bound)->exclusive || (*bound)->value.is_zero()) continue;
    const std::size_t integer = (*bound)->value.n_integer_digits();
    if (integer < kDistinctDigits) {
      n = std::min(n, kDistinctDigits - integer);
    } else {
      *bound = beside((*bound)->value, bound == &limits.low);
    }
  }
  const auto [low, high] = range(limits, n);
  if (less(high, low)) return {};
  const auto of = [&](const std::string& from, const std::string& to) {
    return with_point(from, to, n);
  };
  std::vector<Term> terms;
  terms.push_back({nfa_of(with_sign(low, high, of)), false});
  const Regex form = Regex::sequence(
      {Regex::repeat(text("-"), 0, 1),
       Regex::either({text("0"), Regex::sequence({digit('1', '9'), some_digits(0, kMostDigits)})}),
       Regex::repeat(Regex::sequence({text("."), some_digits(1, n)}), 0, 1)});
  terms.push_back({nfa_of(form), false});
  return intersect(terms, number_characters());
}

}  // namespace pronk::inline v0
