// UTF-8 as it arrives: in pieces, cut anywhere, not always valid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pronk::inline v0 {

/// Turns bytes into whole characters. Invalid bytes become U+FFFD, one for each maximal subpart
/// (Unicode 15, section 3.9), as Python's errors="replace" does; the result does not depend on how
/// the bytes were cut.
class Utf8Decoder {
 public:
  /// Appends the characters that `bytes` completes to `out`. A character begun is kept for the next
  /// call.
  void push(std::string_view bytes, std::string& out);
  /// The input ends: a character that is still incomplete becomes U+FFFD. The decoder can be used
  /// anew.
  void finish(std::string& out);
  /// True between the bytes of a character.
  bool pending() const noexcept { return length_ > 0; }

 private:
  void start(unsigned char byte, std::string& out);

  char bytes_[4] = {};       // the character begun
  std::uint8_t length_ = 0;  // bytes of it so far
  std::uint8_t needed_ = 0;  // bytes of it still to come
  // What the next byte may be: narrower than 80..BF only for the second byte, where it rules out
  // overlong forms, surrogates and code points above 10FFFF.
  unsigned char low_ = 0x80;
  unsigned char high_ = 0xBF;
};

/// The offset of the first byte that is not part of a whole valid character; `npos` where all is
/// well.
std::size_t find_invalid_utf8(std::string_view text);

}  // namespace pronk::inline v0
