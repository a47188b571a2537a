// What text should come out, computed the slow and obvious way over the whole input.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace reference {

inline std::string encode(std::uint32_t code) {
  const auto low = [code](int shift) { return static_cast<char>(0x80 | ((code >> shift) & 0x3F)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xC0 | (code >> 6)), low(0)};
  if (code < 0x10000) return {static_cast<char>(0xE0 | (code >> 12)), low(6), low(0)};
  return {static_cast<char>(0xF0 | (code >> 18)), low(12), low(6), low(0)};
}

/// The length of the character that `bytes` begins with; where it begins with none, minus the
/// length of the maximal subpart. Decodes the number first and judges it afterwards, unlike the
/// table of the real thing.
inline int character(std::string_view bytes) {
  const auto at = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i]));
  };
  const std::uint32_t first = at(0);
  if (first < 0x80) return 1;
  const int length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC0 || first > 0xF7) return -1;
  std::uint32_t code = first & (0xFFu >> (length + 1));
  for (int i = 1; i < length; ++i) {
    if (static_cast<std::size_t>(i) >= bytes.size() ||
        (at(static_cast<std::size_t>(i)) & 0xC0) != 0x80)
      return -i;
    code = (code << 6) | (at(static_cast<std::size_t>(i)) & 0x3F);
    // Can any continuation of these bits still give a valid character of this length?
    const int more = 6 * (length - 1 - i);
    const std::uint32_t lowest = code << more;
    const std::uint32_t highest = lowest | ((1u << more) - 1);
    const std::uint32_t floor = length == 4 ? 0x10000 : length == 3 ? 0x800 : 0x80;
    const bool surrogates = lowest >= 0xD800 && highest <= 0xDFFF;
    if (highest < floor || lowest > 0x10FFFF || surrogates) return -i;
  }
  return length;
}

inline std::string decode(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const int length = character(bytes);
    if (length > 0) {
      out.append(bytes.substr(0, static_cast<std::size_t>(length)));
    } else {
      out.append("\xEF\xBF\xBD");
    }
    bytes.remove_prefix(static_cast<std::size_t>(length > 0 ? length : -length));
  }
  return out;
}

struct Text {
  std::string text;
  bool stopped;
};

/// Cuts at the first position where a stop ends; of several that end there, the longest counts.
inline Text cut(std::string_view bytes, const std::vector<std::string>& stops) {
  const std::string text = decode(bytes);
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops) {
      if (std::string_view(text).substr(0, end).ends_with(stop))
        longest = std::max(longest, stop.size());
    }
    if (longest > 0) return {text.substr(0, end - longest), true};
  }
  return {text, false};
}

/// Bytes that are often, but not always, parts of characters.
inline std::string random_bytes(std::mt19937_64& random, std::size_t most) {
  static constexpr unsigned char kTelling[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF,
                                               0xC0, 0xC1, 0xC2, 0xC3, 0xDF, 0xE0, 0xE2, 0xED, 0xEF,
                                               0xF0, 0xF1, 0xF4, 0xF5, 0xFF, 0x82, 0xAC};
  std::string bytes;
  for (std::size_t n = random() % (most + 1); n > 0; --n) {
    bytes.push_back(static_cast<char>(random() % 8 == 0 ? random() % 256
                                                        : kTelling[random() % sizeof kTelling]));
  }
  return bytes;
}

}  // namespace reference
