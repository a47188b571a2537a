#include "grammar_scan.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "pronk/error.h"
#include "utf8.h"

namespace pronk::inline v0 {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxDepth = 256;
// Elements that repetitions make: 8 bytes each, several times over.
constexpr std::size_t kMaxElements = std::size_t{1} << 21;
constexpr std::size_t kMaxRepetitions = 2000;  // more are none of the parser's

[[noreturn]] void refuse(const std::string& got, const std::string& expected,
                         const std::string& advice) {
  throw GrammarError("grammar: got " + got + ", expected " + expected + ", " + advice);
}

class Scanner {
 public:
  Scanner(std::string_view text, const std::function<Token(std::string_view)>& token_of)
      : text_(text), token_of_(token_of) {}

  std::string run() {
    while (at_ < text_.size()) step();
    return std::move(out_);
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void copy() { out_ += text_[at_++]; }

  void step() {
    switch (const char c = text_[at_]) {
      case '"':
        return literal('"');
      case '[':
        return literal(']');
      case '#':
        while (at_ < text_.size() && peek() != '\n' && peek() != '\r') copy();
        return;
      case '(':
        if (++depth_ > kMaxDepth) {
          refuse("parentheses nested more than " + std::to_string(kMaxDepth) + " deep",
                 "at most that", "name the inner parts as rules");
        }
        return copy();
      case ')':
        if (depth_ > 0) --depth_;
        item_ = 1;
        return copy();
      case '{':
        return repetition();
      case '<':
        return token();
      default:
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r') item_ = 1;
        return copy();
    }
  }

  void literal(char end) {
    const std::size_t begin = at_;
    copy();
    while (at_ < text_.size() && peek() != end) {
      if (peek() == '\\' && at_ + 1 < text_.size()) copy();
      copy();
    }
    if (at_ < text_.size()) copy();
    item_ = std::max<std::size_t>(at_ - begin, 1);
  }

  void space() {
    while (at_ < text_.size()) {
      const char c = peek();
      if (c == '#') {
        while (at_ < text_.size() && peek() != '\n' && peek() != '\r') copy();
      } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        copy();
      } else {
        return;
      }
    }
  }

  std::uint64_t number() {
    std::uint64_t value = 0;
    const char* begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error == std::errc::result_out_of_range) {
      refuse("a repetition that no computer can count", "at most 2000", "lower it");
    }
    while (text_.data() + at_ < end) copy();
    return value;
  }

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  // {m}, {m,} or {m,n}; anything else is the parser's to refuse.
  void repetition() {
    copy();
    space();
    if (!is_digit(peek())) return;
    const std::uint64_t low = number();
    std::uint64_t high = low;
    space();
    if (peek() == ',') {
      copy();
      space();
      if (is_digit(peek())) high = number();
    }
    if (high < low) {
      refuse("a repetition {" + std::to_string(low) + "," + std::to_string(high) + "}",
             "the smaller number first", "swap them");
    }
    n_elements_ += item_ * std::min<std::uint64_t>(high, kMaxRepetitions);
    if (n_elements_ > kMaxElements) {
      refuse("repetitions of more than " + std::to_string(kMaxElements) + " elements",
             "at most that", "repeat less, or name what is repeated as a rule");
    }
  }

  void token() {
    if (text_.substr(at_).starts_with("<[")) return copy();
    const std::size_t end = text_.find('>', at_);
    if (end == std::string_view::npos) return copy();
    const std::string_view spelling = text_.substr(at_, end + 1 - at_);
    const Token id = token_of_(spelling);
    if (id < 0) {
      refuse("the token " + std::string(spelling.substr(0, 60)), "one token of the model",
             "quote it if it is text");
    }
    out_ += "<[" + std::to_string(id) + "]>";
    at_ = end + 1;
    item_ = 1;
  }

  const std::string_view text_;
  const std::function<Token(std::string_view)>& token_of_;
  std::string out_;
  std::size_t at_ = 0;
  std::size_t depth_ = 0;
  std::size_t item_ = 1;        // elements of what a repetition would repeat
  std::size_t n_elements_ = 0;  // made by repetitions
};

}  // namespace

std::string scan_grammar(std::string_view gbnf,
                         const std::function<Token(std::string_view)>& token_of) {
  if (gbnf.size() > kMaxBytes) {
    refuse(std::to_string(gbnf.size()) + " bytes", "at most " + std::to_string(kMaxBytes),
           "simplify it");
  }
  if (const std::size_t at = find_invalid_utf8(gbnf); at != std::string_view::npos) {
    refuse("invalid UTF-8 at byte " + std::to_string(at), "UTF-8", "encode it as UTF-8");
  }
  if (gbnf.find('\0') != std::string_view::npos) {
    refuse("a character U+0000", "text without it", "write it as \\x00");
  }
  return Scanner(gbnf, token_of).run();
}

}  // namespace pronk::inline v0
