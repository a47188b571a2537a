#include "gguf_vocabulary.h"

#include <algorithm>
#include <utility>

namespace pronk::inline v0 {

std::string rwkv_bytes(std::string_view token) {
  // As llama.cpp reads them, what is no hexadecimal digit included.
  std::string bytes;
  for (std::size_t i = 0; i < token.size(); ++i) {
    if (token[i] != '\\') {
      bytes += token[i];
      continue;
    }
    if (++i == token.size()) break;
    if (token[i] == 'x') {
      if (i + 2 >= token.size()) break;
      unsigned value = 0;
      for (const char c : token.substr(i + 1, 2))
        value = (value << 4) + static_cast<unsigned char>(c >= 'a' ? c - 'a' + 10 : c - '0');
      bytes += static_cast<char>(value & 0xff);
      i += 2;
    } else {
      constexpr std::string_view letters = "tnr";
      const std::size_t at = letters.find(token[i]);
      bytes += at == std::string_view::npos ? token[i] : "\t\n\r"[at];
    }
  }
  return bytes;
}

bool GgufVocabulary::add(std::string token) {
  // llama.cpp reads tokens as C strings, and gives those without text a name.
  token.resize(std::min(token.size(), token.find('\0')));
  if (token.empty()) token = "[EMPTY_" + std::to_string(n_) + "]";
  ++n_;
  const auto size = static_cast<double>(token.size());
  suffix_bytes_ += size * size / 2;
  const std::string bytes = rwkv_bytes(token);
  if (!bytes.empty()) {
    const auto first = static_cast<unsigned char>(bytes[0]);
    begins_.set(first);
    if (bytes.size() == 1) alone_.set(first);
  }
  return seen_.insert(std::move(token)).second;
}

int GgufVocabulary::byte_that_loops() const {
  const std::bitset<256> bad = begins_ & ~alone_;
  for (int byte = 0; byte < 256; ++byte) {
    if (bad.test(static_cast<std::size_t>(byte))) return byte;
  }
  return -1;
}

}  // namespace pronk::inline v0
