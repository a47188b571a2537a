// UTF-8 decoding against a second implementation of the same rule, and against known answers.
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "check.h"
#include "text_reference.h"
#include "utf8.h"

namespace {

using pronk::Utf8Decoder;

std::string decode(std::string_view bytes, std::size_t piece) {
  Utf8Decoder decoder;
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += piece) decoder.push(bytes.substr(i, piece), out);
  decoder.finish(out);
  return out;
}

// The right-hand sides are those of CPython: bytes.decode("utf-8", "replace").
TEST(utf8_replaces_maximal_subparts) {
  const std::string r = "\xEF\xBF\xBD";
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", ""},
      {"plain", "plain"},
      {std::string("\0", 1), std::string("\0", 1)},
      {"\xC3\xA9\xE2\x82\xAC\xF0\x9F\xA6\x99", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\xA6\x99"},
      {"\x80", r},
      {"\xBF\xBF", r + r},
      {"\xE2\x82"
       "A",
       r + "A"},
      {"\xE2\x82", r},
      {"\xE2", r},
      {"\xE2\x28\xA1", r + "(" + r},
      {"\xC0\x80", r + r},          // overlong
      {"\xE0\x80\x80", r + r + r},  // overlong
      {"\xE0\x9F\xBF", r + r + r},  // overlong
      {"\xF0\x80\x80\x80", r + r + r + r},
      {"\xED\xA0\x80", r + r + r},  // a surrogate
      {"\xED\x9F\xBF", "\xED\x9F\xBF"},
      {"\xEE\x80\x80", "\xEE\x80\x80"},
      {"\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF"},
      {"\xF4\x90\x80\x80", r + r + r + r},  // above 10FFFF
      {"\xF5\x80", r + r},
      {"\xFF\xFE", r + r},
      {"\xF0\x9F\xA6"
       "\xF0\x9F\xA6\x99",
       r + "\xF0\x9F\xA6\x99"},
      {"\xF1\x80\x80\xE1\x80\xC2"
       "b\x80"
       "c\x80\xBF"
       "d",
       r + r + r + "b" + r + "c" + r + r + "d"},  // Unicode 15, table 3-8 and on
  };
  for (const auto& [bytes, expected] : cases) {
    for (const std::size_t piece : {1, 2, 3, 64}) CHECK_EQ(decode(bytes, piece), expected);
    CHECK_EQ(reference::decode(bytes), expected);
  }
}

TEST(utf8_keeps_an_unfinished_character) {
  Utf8Decoder decoder;
  std::string out;
  decoder.push("a\xF0\x9F", out);
  CHECK_EQ(out, "a");
  CHECK(decoder.pending());
  decoder.push("\xA6\x99", out);
  CHECK_EQ(out, "a\xF0\x9F\xA6\x99");
  CHECK(!decoder.pending());
  decoder.push("\xE2\x82", out);
  out.clear();
  decoder.finish(out);
  CHECK_EQ(out, "\xEF\xBF\xBD");
  decoder.push("b", out);  // usable anew
  CHECK_EQ(out,
           "\xEF\xBF\xBD"
           "b");
}

TEST(utf8_does_not_depend_on_the_chunks) {
  std::mt19937_64 random(check::seed());
  for (int round = 0; round < 4000; ++round) {
    const std::string bytes = reference::random_bytes(random, 12);
    const std::string expected = reference::decode(bytes);
    for (const std::size_t piece : {1, 2, 3, 5, 12}) CHECK_EQ(decode(bytes, piece), expected);
    CHECK_EQ(pronk::find_invalid_utf8(expected), std::string_view::npos);
    CHECK_EQ(pronk::find_invalid_utf8(bytes) == std::string_view::npos, bytes == expected);
  }
}

TEST(utf8_every_code_point_is_itself) {
  for (std::uint32_t code = 0; code <= 0x10FFFF; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    const std::string bytes = reference::encode(code);
    if (!CHECK_EQ(decode(bytes, 1), bytes)) return;
    if (!CHECK_EQ(pronk::find_invalid_utf8(bytes), std::string_view::npos)) return;
  }
}

TEST(utf8_finds_the_first_invalid_byte) {
  CHECK_EQ(pronk::find_invalid_utf8(""), std::string_view::npos);
  CHECK_EQ(pronk::find_invalid_utf8("ab\xFF"
                                    "c"),
           2u);
  CHECK_EQ(pronk::find_invalid_utf8("\xC3\xA9\xE2\x82"), 2u);
  CHECK_EQ(pronk::find_invalid_utf8("\xC3\xA9\xE2\x82"
                                    "x"),
           2u);
  CHECK_EQ(pronk::find_invalid_utf8("\xED\xA0\x80"), 0u);
  CHECK_EQ(pronk::find_invalid_utf8("a\x80"), 1u);
  CHECK_EQ(pronk::find_invalid_utf8("a\xC3"), 1u);
}

}  // namespace
