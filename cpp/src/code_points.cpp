#include "code_points.h"

#include <algorithm>
#include <iterator>

namespace pronk::inline v0 {

CodePoints::CodePoints(std::initializer_list<Range> ranges) {
  for (const Range& range : ranges) add(range.first, range.last);
}

void CodePoints::add(char32_t first, char32_t last) {
  if (first > last) return;
  // Those that overlap it or lie next to it become one with it.
  auto begin = std::find_if(ranges_.begin(), ranges_.end(),
                            [&](const Range& range) { return range.last + 1 >= first; });
  auto end = begin;
  for (; end != ranges_.end() && end->first <= last + 1; ++end) {
    first = std::min(first, end->first);
    last = std::max(last, end->last);
  }
  ranges_.insert(ranges_.erase(begin, end), {first, last});
}

bool CodePoints::contains(char32_t c) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), c,
                       [](char32_t value, const Range& r) { return value < r.first; });
  return after != ranges_.begin() && c <= std::prev(after)->last;
}

CodePoints operator|(const CodePoints& a, const CodePoints& b) {
  CodePoints result = a;
  for (const auto& range : b.ranges_) result.add(range.first, range.last);
  return result;
}

CodePoints operator~(const CodePoints& a) {
  CodePoints result;
  char32_t next = 0;
  for (const auto& range : a.ranges_) {
    if (next < range.first) result.ranges_.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= CodePoints::kLast) result.ranges_.push_back({next, CodePoints::kLast});
  return result;
}

CodePoints operator&(const CodePoints& a, const CodePoints& b) { return ~(~a | ~b); }

std::u32string code_points_of(std::string_view text) {
  std::u32string result;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i++]);
    int n = byte < 0x80 ? 0 : byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
    char32_t c = n == 0 ? byte : byte & (0x3F >> n);
    for (; n > 0 && i < text.size(); --n) {
      c = c << 6 | (static_cast<unsigned char>(text[i++]) & 0x3F);
    }
    result += c;
  }
  return result;
}

}  // namespace pronk::inline v0
