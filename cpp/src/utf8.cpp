#include "utf8.h"

namespace pronk::inline v0 {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// How a character goes on after its first byte; Unicode 15, table 3-7.
struct Lead {
  std::uint8_t more = 0;  // bytes that follow; 0 where the byte starts no character of several
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
};

constexpr Lead lead_of(unsigned char byte) {
  if (byte < 0xC2 || byte > 0xF4) return {};
  if (byte < 0xE0) return {1};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte < 0xF0) return {2};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {3};
}

}  // namespace

void Utf8Decoder::start(unsigned char byte, std::string& out) {
  if (byte < 0x80) {
    out.push_back(static_cast<char>(byte));
    return;
  }
  const Lead lead = lead_of(byte);
  if (lead.more == 0) {
    out.append(kReplacement);
    return;
  }
  bytes_[0] = static_cast<char>(byte);
  length_ = 1;
  needed_ = lead.more;
  low_ = lead.low;
  high_ = lead.high;
}

void Utf8Decoder::push(std::string_view bytes, std::string& out) {
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (length_ == 0) {
      start(byte, out);
      continue;
    }
    if (byte < low_ || byte > high_) {
      // The character breaks off here; this byte may start another one.
      out.append(kReplacement);
      length_ = 0;
      start(byte, out);
      continue;
    }
    bytes_[length_++] = c;
    low_ = 0x80;
    high_ = 0xBF;
    if (--needed_ == 0) {
      out.append(bytes_, length_);
      length_ = 0;
    }
  }
}

void Utf8Decoder::finish(std::string& out) {
  if (length_ > 0) out.append(kReplacement);
  length_ = 0;
}

std::size_t find_invalid_utf8(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    const auto first = static_cast<unsigned char>(text[i]);
    if (first < 0x80) {
      ++i;
      continue;
    }
    const Lead lead = lead_of(first);
    if (lead.more == 0 || text.size() - i <= lead.more) return i;
    for (std::size_t k = 1; k <= lead.more; ++k) {
      const auto byte = static_cast<unsigned char>(text[i + k]);
      if (byte < (k == 1 ? lead.low : 0x80) || byte > (k == 1 ? lead.high : 0xBF)) return i;
    }
    i += lead.more + std::size_t{1};
  }
  return std::string_view::npos;
}

}  // namespace pronk::inline v0
