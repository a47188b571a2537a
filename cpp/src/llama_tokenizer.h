// Text to tokens and back, guarded against what in llama.cpp's tokenizers ends the process.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "llama.h"
#include "pronk/params.h"

namespace pronk::inline v0 {

class LlamaTokenizer {
 public:
  /// Throws ModelLoadError, with `path` in its message, for a vocabulary that cannot be used.
  LlamaTokenizer(const llama_vocab* vocab, const std::string& path);

  /// `text` is valid UTF-8. Throws InvalidArgumentError, InsufficientMemoryError, BackendError.
  std::vector<Token> tokenize(std::string_view text, bool add_special, bool parse_special) const;
  /// The token is in range.
  void append_piece(Token token, bool special, std::string& out) const;
  std::string detokenize(const std::vector<Token>& tokens, bool special) const;

  std::int32_t size() const noexcept { return n_tokens_; }

 private:
  std::vector<Token> call(std::string_view text, bool add_special, bool parse_special) const;

  const llama_vocab* const vocab_;
  std::int32_t n_tokens_ = 0;
  bool recursive_ = false;          // splits text by regular expressions
  bool adds_space_prefix_ = false;  // "a" becomes the token " a" at the start of a text
};

/// Characters of the longest stretch that one regular expression of a tokenizer may match at once:
/// between two of them the recursion unwinds.
std::size_t longest_stretch(std::string_view text);

}  // namespace pronk::inline v0
