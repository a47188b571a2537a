// Sets of characters.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace pronk::inline v0 {

/// A set of Unicode code points.
class CodePoints {
 public:
  static constexpr char32_t kLast = 0x10FFFF;

  struct Range {
    char32_t first, last;  // both belong to it
    friend auto operator<=>(const Range&, const Range&) = default;
  };

  CodePoints() = default;
  CodePoints(std::initializer_list<Range> ranges);
  static CodePoints of(char32_t c) { return {{c, c}}; }

  void add(char32_t first, char32_t last);
  bool contains(char32_t c) const;
  bool empty() const noexcept { return ranges_.empty(); }
  /// Ascending, with a gap between each two.
  const std::vector<Range>& ranges() const noexcept { return ranges_; }

  friend CodePoints operator|(const CodePoints& a, const CodePoints& b);
  friend CodePoints operator&(const CodePoints& a, const CodePoints& b);
  friend CodePoints operator~(const CodePoints& a);
  friend auto operator<=>(const CodePoints&, const CodePoints&) = default;

 private:
  std::vector<Range> ranges_;
};

/// The characters of UTF-8, which has to be valid.
std::u32string code_points_of(std::string_view text);

}  // namespace pronk::inline v0
