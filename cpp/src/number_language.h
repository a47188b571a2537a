// The numbers between two bounds, as JSON writes them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "automaton.h"

namespace pronk::inline v0 {

/// A number as JSON text has it: no value is lost in it.
class Decimal {
 public:
  Decimal() = default;  ///< zero
  /// `text` is a JSON number.
  explicit Decimal(std::string_view text);

  /// Its value times 10^n: the largest integer not above it. `exact` says whether it is that.
  struct Scaled {
    bool negative = false;
    std::string digits;  // without leading zeros; "0" is not negative
    bool exact = true;
  };
  Scaled scaled(std::size_t n) const;
  double rounded() const;
  bool is_zero() const { return digits_ == "0"; }
  bool is_integer() const { return scaled(0).exact; }
  /// Digits before the point, of a number of at least one; else 0.
  std::size_t n_integer_digits() const;

 private:
  bool negative_ = false;
  std::string digits_ = "0";  // without leading zeros
  long exponent_ = 0;         // of ten, for the last digit
};

/// Below, at or above 0: `a` is less than, equal to, or more than `b`.
int compare(const Decimal& a, const Decimal& b);

struct Bound {
  Decimal value;
  bool exclusive = false;  ///< the bound itself is not among them
};

struct NumberLimits {
  std::optional<Bound> low, high;
};

/// All integers within `limits`; without a limit to one side, those of at most 16 digits, or as
/// many as the other limit has; fewer where `multiple_of`, 1 to 128, is large. Throws
/// AutomatonTooLarge.
Dfa integers_within(const NumberLimits& limits, unsigned multiple_of = 1);

/// Numbers without an exponent, with at most 16 digits before and after the point. Read as a
/// double, each is within `limits`. Throws AutomatonTooLarge.
Dfa numbers_within(const NumberLimits& limits);

}  // namespace pronk::inline v0
