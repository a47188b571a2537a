// What has to hold for the rules of a grammar before anything follows them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pronk::inline v0 {

/// A rule as far as it matters here: its alternatives, each a sequence of references to rules,
/// where -1 stands for anything that takes up text.
using RuleShape = std::vector<std::vector<std::int64_t>>;

/// A rule that can come back to itself before it has taken up text, with ever more left to do, or
/// -1. Who follows it never ends. One that comes back with nothing more to do is harmless.
std::int64_t find_left_recursion(const std::vector<RuleShape>& rules);

/// A rule with a place from which more than `most` others can be reached by leaving out what may be
/// empty, or -1. Following it takes time with a power of their number. Expects no left recursion.
std::int64_t find_long_skip(const std::vector<RuleShape>& rules, std::size_t most);

}  // namespace pronk::inline v0
