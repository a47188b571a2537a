// Regular expressions, as trees.
#pragma once

#include <cstddef>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "code_points.h"

namespace pronk::inline v0 {

struct Regex {
  enum class Kind {
    kSequence,  ///< its parts, one after the other; of none: the empty text
    kEither,    ///< one of its parts; of none: no text at all
    kRepeat,    ///< its only part, `min` to `max` times
    kSet,       ///< a character of `set`
    kStart,     ///< where the text begins
    kEnd,       ///< where it ends
    kBoundary,  ///< between a character of an ASCII word and another, or an end of the text
    kNoBoundary
  };
  static constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

  Kind kind = Kind::kSequence;
  std::vector<Regex> parts;
  std::size_t min = 0, max = 0;
  CodePoints set;

  static Regex of(CodePoints set) { return {Kind::kSet, {}, 0, 0, std::move(set)}; }
  static Regex sequence(std::vector<Regex> parts) {
    return {Kind::kSequence, std::move(parts), 0, 0, {}};
  }
  static Regex either(std::vector<Regex> parts) {
    return {Kind::kEither, std::move(parts), 0, 0, {}};
  }
  static Regex repeat(Regex part, std::size_t min, std::size_t max = kNoLimit) {
    std::vector<Regex> parts;
    parts.push_back(std::move(part));
    return {Kind::kRepeat, std::move(parts), min, max, {}};
  }
  static Regex literal(std::u32string_view text) {
    std::vector<Regex> parts;
    for (const char32_t c : text) parts.push_back(of(CodePoints::of(c)));
    return sequence(std::move(parts));
  }
};

}  // namespace pronk::inline v0
