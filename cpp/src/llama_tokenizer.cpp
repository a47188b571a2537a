#include "llama_tokenizer.h"

#include <algorithm>
#include <array>
#include <exception>
#include <limits>

#include "big_stack.h"
#include "llama_asserts.h"
#include "pronk/error.h"

namespace pronk::inline v0 {
namespace {

// BPE models split text by std::regex where llama.cpp has no splitter of its own. It recurses once
// per character of a match: 256 to 600 bytes of stack each, as measured with libstdc++.
constexpr std::size_t kStackPerCharacter = 2048;
constexpr std::size_t kBaseStack = std::size_t{16} << 20;
constexpr std::size_t kDirectStretch = 128;                // fits any thread's stack
constexpr std::size_t kMaxStretch = std::size_t{1} << 20;  // 600 MB of stack at worst

// Whatever the expression, what it matches is of one of these kinds. Bytes above 127 may be letters
// or signs.
constexpr int kKinds = 4;
constexpr std::array<unsigned char, 256> kinds_of_bytes() {
  std::array<unsigned char, 256> kinds{};
  for (int b = 0; b < 256; ++b) {
    const bool wide = b >= 0x80;
    const bool letter = (b | 32) >= 'a' && (b | 32) <= 'z';
    const bool space = b == ' ' || (b >= '\t' && b <= '\r');
    const bool digit = b >= '0' && b <= '9';
    const bool line_end = b == '\n' || b == '\r';
    const bool sign = !wide && !letter && !space && !digit;
    kinds[b] = static_cast<unsigned char>(
        (space ? 0 : 1) |                       // anything but space
        (wide || letter || b == ' ' ? 2 : 0) |  // words
        (wide || space ? 4 : 0) |               // space
        (wide || sign || line_end ? 8 : 0));    // signs, up to the line's end
  }
  return kinds;
}

[[noreturn]] void refuse(const std::string& path, const std::string& lack) {
  throw ModelLoadError(path + ": got a vocabulary without " + lack +
                       ", expected one that can tokenize, convert the model again");
}

}  // namespace

std::size_t longest_stretch(std::string_view text) {
  static constexpr auto kinds = kinds_of_bytes();
  std::size_t lengths[kKinds] = {};
  std::size_t longest = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const std::size_t characters = (byte & 0xc0) == 0x80 ? 0 : 1;  // 0 inside of one
    for (int kind = 0; kind < kKinds; ++kind) {
      lengths[kind] = (kinds[byte] >> kind & 1) != 0 ? lengths[kind] + characters : 0;
      longest = std::max(longest, lengths[kind]);
    }
  }
  return longest;
}

LlamaTokenizer::LlamaTokenizer(const llama_vocab* vocab, const std::string& path) : vocab_(vocab) {
  const enum llama_vocab_type type = llama_vocab_type(vocab);
  if (type == LLAMA_VOCAB_TYPE_NONE) refuse(path, "a tokenizer");
  n_tokens_ = llama_vocab_n_tokens(vocab);
  if (n_tokens_ < 1) refuse(path, "tokens");
  // llama.cpp aborts when it is to add one of these and there is none.
  const auto has = [&](llama_token token) { return token >= 0 && token < n_tokens_; };
  const bool bos = type == LLAMA_VOCAB_TYPE_WPM || llama_vocab_get_add_bos(vocab);
  if (bos && !has(llama_vocab_bos(vocab)))
    refuse(path, "the BOS token that it wants at the start of a text");
  if (type == LLAMA_VOCAB_TYPE_WPM && !has(llama_vocab_sep(vocab)))
    refuse(path, "a separator token");
  const bool eos = type != LLAMA_VOCAB_TYPE_WPM && llama_vocab_get_add_eos(vocab);
  if (eos && !has(llama_vocab_eos(vocab)))
    refuse(path, "the EOS token that it wants at the end of a text");
  recursive_ = type == LLAMA_VOCAB_TYPE_BPE;

  const std::vector<Token> probe = tokenize("a", false, false);
  std::string text;
  for (const Token token : probe) append_piece(token, false, text);
  adds_space_prefix_ = text == " a";
}

std::vector<Token> LlamaTokenizer::tokenize(std::string_view text, bool add_special,
                                            bool parse_special) const {
  if (!recursive_) return call(text, add_special, parse_special);
  const std::size_t stretch = longest_stretch(text);
  if (stretch <= kDirectStretch) return call(text, add_special, parse_special);
  if (stretch > kMaxStretch) {
    throw InvalidArgumentError("text: got a stretch of " + std::to_string(stretch) +
                               " characters without a break, expected at most " +
                               std::to_string(kMaxStretch) + ", split it");
  }
  std::vector<Token> tokens;
  run_on_big_stack(kBaseStack + stretch * kStackPerCharacter,
                   [&] { tokens = call(text, add_special, parse_special); });
  return tokens;
}

std::vector<Token> LlamaTokenizer::call(std::string_view text, bool add_special,
                                        bool parse_special) const {
  // A token is at least one byte as a rule, of long texts some four: too small a guess costs a
  // second pass.
  const std::size_t guess =
      text.size() < (std::size_t{1} << 20) ? text.size() + 16 : text.size() / 2;
  std::vector<Token> tokens(guess);
  std::int32_t n = 0;
  try {
    const AssertsThrow guard;
    for (int pass = 0; pass < 2; ++pass) {
      n = llama_tokenize(vocab_, text.data(), static_cast<std::int32_t>(text.size()), tokens.data(),
                         static_cast<std::int32_t>(tokens.size()), add_special, parse_special);
      if (n >= 0 || n == std::numeric_limits<std::int32_t>::min()) break;
      tokens.resize(static_cast<std::size_t>(-n));  // what it needs
    }
  } catch (const std::bad_alloc&) {
    throw InsufficientMemoryError(
        "text: got " + std::to_string(text.size()) +
        " bytes, too many to tokenize in the memory left, pass it in parts");
  } catch (const std::exception& error) {
    throw BackendError(std::string("tokenize: llama.cpp failed with '") + error.what() +
                       "', expected a vocabulary that covers the text, use another model");
  }
  if (n < 0) {
    throw BackendError("tokenize: got no result from llama.cpp for " + std::to_string(text.size()) +
                       " bytes, pass the text in parts");
  }
  tokens.resize(static_cast<std::size_t>(n));
  // Some tokenizers answer -1 where the vocabulary has no unknown token.
  for (const Token token : tokens) {
    if (token < 0 || token >= n_tokens_) {
      throw BackendError("tokenize: got token " + std::to_string(token) +
                         " from llama.cpp, expected 0 to " + std::to_string(n_tokens_ - 1) +
                         ", the model's vocabulary does not cover the text");
    }
  }
  return tokens;
}

void LlamaTokenizer::append_piece(Token token, bool special, std::string& out) const {
  char piece[128];
  try {
    const AssertsThrow guard;
    const std::int32_t n = llama_token_to_piece(vocab_, token, piece, sizeof(piece), 0, special);
    if (n >= 0) {
      out.append(piece, static_cast<std::size_t>(n));
      return;
    }
    const std::size_t start = out.size();
    out.resize(start + static_cast<std::size_t>(-n));
    const std::int32_t written =
        llama_token_to_piece(vocab_, token, out.data() + start, -n, 0, special);
    out.resize(start + static_cast<std::size_t>(std::max(written, 0)));
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw BackendError("detokenize: llama.cpp failed with '" + std::string(error.what()) +
                       "' for token " + std::to_string(token) +
                       ", its entry in the vocabulary is damaged");
  }
}

std::string LlamaTokenizer::detokenize(const std::vector<Token>& tokens, bool special) const {
  std::string text;
  for (const Token token : tokens) append_piece(token, special, text);
  if (adds_space_prefix_ && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

}  // namespace pronk::inline v0
