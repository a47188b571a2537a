// What the checks need to know of the tokens of a model file.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>

namespace pronk::inline v0 {

/// Reads the tokens of a vocabulary one by one, in the order of their ids.
class GgufVocabulary {
 public:
  /// False where llama.cpp, which then aborts, would take the token for one that was added before.
  bool add(std::string token);

  /// RWKV's tokenizer goes back to the start of the text, for ever, after a byte with which a token
  /// begins but that is no token itself. Returns such a byte, or -1.
  int byte_that_loops() const;

  /// Bytes that PLaMo's tokenizer takes up, which keeps every suffix of every token.
  double suffix_bytes() const { return suffix_bytes_; }

  /// Forgets the texts.
  void finish() { seen_ = {}; }

 private:
  std::uint64_t n_ = 0;
  double suffix_bytes_ = 0;
  std::unordered_set<std::string> seen_;
  std::bitset<256> begins_;  // some token, read as RWKV's are
  std::bitset<256> alone_;   // is a token by itself
};

/// The bytes that a token of RWKV's stands for.
std::string rwkv_bytes(std::string_view token);

}  // namespace pronk::inline v0
