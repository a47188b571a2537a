#include "schema_pattern.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "grammar_vocabulary.h"

namespace pronk::inline v0 {
namespace {

constexpr std::size_t kMaxDepth = 100;
constexpr std::size_t kMaxCount = 2000;

const CodePoints kDigit = {{'0', '9'}};
const CodePoints kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CodePoints kSpace = {{'\t', '\r'}, {' ', ' '}};
const CodePoints kAscii = {{1, 0x7F}};
const CodePoints kPrintable = {{' ', '~'}};
// Planes of symbols and ideographs without digits.
const CodePoints kNoDigit = {{1, '0' - 1},     {'9' + 1, 0x65F}, {0x1E00, 0x2FFF},
                             {0x3001, 0x9FFF}, {0xAC00, 0xD7A3}, {0x1F300, 0x1F6FF}};
// Signs that belong to no word in anybody's view.
const CodePoints kNoWord = {{1, '0' - 1},     {'9' + 1, 'A' - 1}, {'Z' + 1, '_' - 1},
                            {'`', '`'},       {'z' + 1, 0x7F},    {0xA1, 0xA9},
                            {0xAB, 0xAC},     {0x2010, 0x2027},   {0x2030, 0x203E},
                            {0x2190, 0x21FF}, {0x3001, 0x3003},   {0x1F300, 0x1F5FF}};
const CodePoints kNoSpace = ~CodePoints{
    {0, ' '},         {0x7F, 0xA0},     {0x1680, 0x1680}, {0x180E, 0x180E}, {0x2000, 0x200F},
    {0x2028, 0x202F}, {0x205F, 0x206F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}, {0xD800, 0xDFFF}};
// What stands for characters that a pattern does not name: none of those that control devices.
const CodePoints kCommon = {{'\t', '\n'}, {'\r', '\r'}, {' ', 0xD7FF}, {0xE000, CodePoints::kLast}};
const CodePoints kDot = kCommon & ~CodePoints{{'\n', '\r'}, {0x85, 0x85}, {0x2028, 0x2029}};

bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }
bool is_letter(char32_t c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }

int hex_value(char32_t c) {
  if (is_digit(c)) return static_cast<int>(c - '0');
  const char32_t lower = c | 0x20;
  return lower >= 'a' && lower <= 'f' ? static_cast<int>(lower - 'a' + 10) : -1;
}

class Reader {
 public:
  explicit Reader(std::string_view pattern)
      : text_(code_points_of(pattern)), alphabet_(text_characters()) {}

  Pattern run() {
    flags();
    Regex regex = either(0);
    if (more()) malformed("')' without '('");
    Pattern pattern;
    pattern.terms.push_back({nfa_of(regex, &kCommon), false});
    for (auto& [ahead, negated] : ahead_) {
      if (negated) alphabet_ = alphabet_ & kPrintable;
      pattern.terms.push_back(
          {nfa_of(Regex::sequence({{Regex::Kind::kStart, {}, 0, 0, {}}, std::move(ahead)}),
                  &kCommon),
           negated});
    }
    pattern.alphabet = std::move(alphabet_);
    return pattern;
  }

 private:
  bool more() const { return at_ < text_.size(); }
  char32_t peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : U'\0';
  }
  bool next_is(std::u32string_view what) const {
    return std::u32string_view(text_).substr(at_).starts_with(what);
  }
  bool take(std::u32string_view what) {
    if (!next_is(what)) return false;
    at_ += what.size();
    return true;
  }

  [[noreturn]] void fail(const std::string& what, std::size_t at, bool malformed) const {
    throw PatternError{what + " at character " + std::to_string(at + 1), malformed};
  }
  [[noreturn]] void malformed(const std::string& what) const { fail(what, at_, true); }
  [[noreturn]] void unsupported(const std::string& what) const { fail(what, at_, false); }

  // The next `n` characters, in quotes.
  std::string quoted(std::size_t n) const {
    std::string text;
    for (std::size_t i = at_; i < std::min(at_ + n, text_.size()); ++i) append_utf8(text_[i], text);
    return "'" + text + "'";
  }

  void flags() {
    if (!next_is(U"(?") || !is_letter(peek(2)) || peek(2) == 'P') return;
    std::size_t end = at_ + 2;
    while (end < text_.size() && is_letter(text_[end])) ++end;
    if (end >= text_.size() || text_[end] != ')') return;
    for (std::size_t i = at_ + 2; i < end; ++i) {
      if (text_[i] == 'i') {
        any_case_ = true;
      } else if (text_[i] == 's') {
        dot_all_ = true;
      } else {
        unsupported("the flags " + quoted(end + 1 - at_));
      }
    }
    at_ = end + 1;
  }

  Regex either(std::size_t depth) {
    if (depth > kMaxDepth)
      unsupported("groups nested more than " + std::to_string(kMaxDepth) + " deep");
    std::vector<Regex> parts;
    parts.push_back(sequence(depth));
    while (peek() == '|' && more()) {
      if (depth == 0 && !ahead_.empty()) unsupported("'|' beside a lookahead");
      ++at_;
      parts.push_back(sequence(depth));
    }
    return parts.size() == 1 ? std::move(parts[0]) : Regex::either(std::move(parts));
  }

  Regex sequence(std::size_t depth) {
    std::vector<Regex> parts;
    const bool first = depth == 0 && at_ == begin_of_body();
    while (more() && peek() != '|' && peek() != ')') {
      if (next_is(U"(?=") || next_is(U"(?!")) {
        const bool leading = first && parts.size() == 1 && parts[0].kind == Regex::Kind::kStart;
        if (!leading) unsupported("a lookahead that does not follow the first '^'");
        const bool negated = peek(2) == '!';
        at_ += 3;
        Regex ahead = either(depth + 1);
        close();
        if (is_quantifier()) unsupported("a lookahead that is repeated");
        ahead_.emplace_back(std::move(ahead), negated);
        continue;
      }
      parts.push_back(quantified(depth));
    }
    return parts.size() == 1 ? std::move(parts[0]) : Regex::sequence(std::move(parts));
  }

  // After the flags.
  std::size_t begin_of_body() const { return any_case_ || dot_all_ ? text_.find(U')') + 1 : 0; }

  void close() {
    if (peek() != ')' || !more()) malformed("'(' without ')'");
    ++at_;
  }

  // {m}, {m,} or {m,n}.
  bool is_count() const {
    std::size_t i = 1;
    const auto digits = [&] {
      const std::size_t begin = i;
      while (is_digit(peek(i))) ++i;
      return i > begin;
    };
    if (peek() != '{' || !digits()) return false;
    if (peek(i) == ',') {
      ++i;
      digits();
    }
    return peek(i) == '}';
  }

  bool is_quantifier() const {
    const char32_t c = peek();
    return more() && (c == '*' || c == '+' || c == '?' || is_count());
  }

  std::size_t count() {
    std::size_t value = 0;
    for (; is_digit(peek()); ++at_) value = std::min(value * 10 + (peek() - '0'), 100 * kMaxCount);
    if (value > kMaxCount) {
      unsupported("a repetition of more than " + std::to_string(kMaxCount));
    }
    return value;
  }

  Regex quantified(std::size_t depth) {
    if (is_quantifier()) malformed("nothing to repeat with " + quoted(1));
    if (next_is(U"{,")) unsupported("'{,', which readers of patterns disagree about,");
    const std::size_t begin = at_;
    Regex part = atom(depth);
    if (!is_quantifier()) return part;
    if (part.kind != Regex::Kind::kSet && text_[begin] != '(') {
      unsupported("an assertion that is repeated");
    }
    std::size_t min = 0;
    std::size_t max = Regex::kNoLimit;
    const char32_t c = peek();
    ++at_;
    if (c == '+') min = 1;
    if (c == '?') max = 1;
    if (c == '{') {
      min = max = count();
      if (take(U",")) max = peek() == '}' ? Regex::kNoLimit : count();
      if (max < min) malformed("a repetition with the larger number first");
      ++at_;
    }
    if (peek() == '+' && more()) unsupported("a possessive quantifier");
    take(U"?");  // lazy: what matches is the same
    if (is_quantifier()) malformed("two quantifiers in a row");
    return Regex::repeat(std::move(part), min, max);
  }

  static Regex assertion(Regex::Kind kind) { return {kind, {}, 0, 0, {}}; }

  Regex atom(std::size_t depth) {
    switch (const char32_t c = peek()) {
      case '(':
        return group(depth);
      case '[':
        return Regex::of(character_class());
      case '^':
        ++at_;
        return assertion(Regex::Kind::kStart);
      case '$':
        ++at_;
        return assertion(Regex::Kind::kEnd);
      case '.':
        ++at_;
        return Regex::of(dot_all_ ? kCommon : kDot);
      case '\\':
        if (peek(1) == 'b' || peek(1) == 'B') {
          // Words are another thing beyond ASCII for each reader.
          alphabet_ = alphabet_ & kAscii;
          at_ += 2;
          return assertion(text_[at_ - 1] == 'b' ? Regex::Kind::kBoundary
                                                 : Regex::Kind::kNoBoundary);
        }
        return Regex::of(escape_set(false));
      default:
        ++at_;
        return Regex::of(folded(CodePoints::of(c)));
    }
  }

  Regex group(std::size_t depth) {
    if (next_is(U"(?") && !next_is(U"(?:")) {
      if (!next_is(U"(?<") && !next_is(U"(?P<")) unsupported("the group " + quoted(3));
      if (next_is(U"(?<=") || next_is(U"(?<!")) unsupported("a lookbehind");
      const std::size_t end = text_.find(U'>', at_);
      if (end == std::u32string::npos) malformed("a group's name without '>'");
      at_ = end + 1;
    } else {
      at_ += next_is(U"(?:") ? 3 : 1;
    }
    Regex inner = either(depth + 1);
    close();
    return inner;
  }

  // Letters of ASCII in both cases, where case makes no difference.
  CodePoints folded(CodePoints set) const {
    if (!any_case_) return set;
    for (char32_t c = 'a'; c <= 'z'; ++c) {
      const char32_t upper = c - 'a' + 'A';
      if (set.contains(c)) set.add(upper, upper);
      if (set.contains(upper)) set.add(c, c);
    }
    return set;
  }

  char32_t hex(std::size_t n) {
    char32_t value = 0;
    for (; n > 0; --n, ++at_) {
      const int digit = hex_value(peek());
      if (digit < 0) malformed("an escape without its hexadecimal digits");
      value = value * 16 + static_cast<char32_t>(digit);
    }
    return value;
  }

  char32_t unicode_escape() {
    if (take(U"{")) {
      std::size_t n = 0;
      while (hex_value(peek(n)) >= 0) ++n;
      if (n == 0 || n > 6 || peek(n) != '}') malformed("an escape '\\u{' without '}'");
      const char32_t value = hex(n);
      ++at_;
      return value;
    }
    const char32_t high = hex(4);
    if (high < 0xD800 || high > 0xDBFF || !next_is(U"\\u")) return high;
    at_ += 2;
    const char32_t low = hex(4);
    if (low < 0xDC00 || low > 0xDFFF) malformed("half of a surrogate pair");
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
  }

  // A class such as \d, or null; not taken.
  const CodePoints* named_class(bool negated) const {
    static const std::map<char32_t, std::pair<const CodePoints*, const CodePoints*>> kClasses = {
        {'d', {&kDigit, &kNoDigit}}, {'D', {&kNoDigit, &kDigit}}, {'w', {&kWord, &kNoWord}},
        {'W', {&kNoWord, &kWord}},   {'s', {&kSpace, &kNoSpace}}, {'S', {&kNoSpace, &kSpace}}};
    const auto found = kClasses.find(peek(1));
    if (peek() != '\\' || found == kClasses.end()) return nullptr;
    return negated ? found->second.second : found->second.first;
  }

  CodePoints escape_set(bool in_class) {
    if (const CodePoints* named = named_class(false)) {
      at_ += 2;
      return *named;
    }
    return folded(CodePoints::of(escape(in_class)));
  }

  char32_t escape(bool in_class) {
    if (at_ + 1 >= text_.size()) malformed("a '\\' at the end");
    const char32_t c = peek(1);
    static const std::map<char32_t, char32_t> kControls = {
        {'t', '\t'}, {'n', '\n'}, {'r', '\r'}, {'f', '\f'}, {'v', '\v'}};
    if (const auto control = kControls.find(c); control != kControls.end()) {
      at_ += 2;
      return control->second;
    }
    if (in_class && c == 'b') {
      at_ += 2;
      return '\b';
    }
    if (c == 'x' || c == 'u' || c == 'U') {
      const std::size_t begin = at_;
      at_ += 2;
      const char32_t value = c == 'x' ? hex(2) : c == 'u' ? unicode_escape() : hex(8);
      if (value > CodePoints::kLast || (value >= 0xD800 && value <= 0xDFFF)) {
        at_ = begin;
        malformed("an escape that is no character");
      }
      return value;
    }
    if (is_digit(c) && c != '0') unsupported("a reference to a group, " + quoted(2) + ",");
    if (is_digit(c) || is_letter(c) || c > 0x7F) unsupported("the escape " + quoted(2));
    at_ += 2;
    return c;
  }

  CodePoints character_class() {
    const std::size_t begin = at_;
    ++at_;
    const bool negated = take(U"^");
    if (peek() == ']' && more()) unsupported("a class that begins with ']'");
    CodePoints set = negated ? kCommon : CodePoints();
    const auto include = [&](const CodePoints& more_of_it) {
      set = negated ? set & ~more_of_it : set | more_of_it;
    };
    while (peek() != ']' || !more()) {
      if (!more()) fail("'[' without ']'", begin, true);
      if (next_is(U"[:") || next_is(U"&&") || next_is(U"~~") || next_is(U"--")) {
        unsupported(quoted(2) + " in a class, which readers of patterns disagree about,");
      }
      if (const CodePoints* named = named_class(negated)) {
        at_ += 2;
        set = negated ? set & *named : set | *named;
        if (peek() == '-' && peek(1) != ']') unsupported("a range that begins with a class");
        continue;
      }
      const char32_t first = class_character();
      char32_t last = first;
      if (peek() == '-' && peek(1) != ']' && at_ + 1 < text_.size()) {
        ++at_;
        if (named_class(false) != nullptr) unsupported("a range that ends with a class");
        last = class_character();
        if (last < first) malformed("a range that ends before it begins");
      }
      include(folded(CodePoints{{first, last}}));
    }
    ++at_;
    // Some characters beyond ASCII are letters of ASCII in the other case.
    return negated && any_case_ ? set & kAscii : set;
  }

  char32_t class_character() { return peek() == '\\' ? escape(true) : text_[at_++]; }

  const std::u32string text_;
  CodePoints alphabet_;
  std::size_t at_ = 0;
  bool any_case_ = false;
  bool dot_all_ = false;
  std::vector<std::pair<Regex, bool>> ahead_;  // lookaheads from the beginning, negated
};

}  // namespace

const CodePoints& text_characters() {
  static const CodePoints all = {{1, 0xD7FF}, {0xE000, CodePoints::kLast}};
  return all;
}

Pattern read_pattern(std::string_view pattern) { return Reader(pattern).run(); }

}  // namespace pronk::inline v0
