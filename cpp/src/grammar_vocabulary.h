// The texts of a model's tokens, decoded once for all grammars.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pronk/engine.h"

namespace pronk::inline v0 {

/// llama.cpp follows a token's text by one call per character: a longer one is never allowed.
constexpr std::size_t kMaxTokenCharacters = 512;

/// Takes the next byte of UTF-8. `value` and `n_remain` are the character begun: its bits so far,
/// and how many bytes it lacks. Appends a whole character. False where the byte fits nothing.
bool decode_utf8_byte(unsigned char byte, std::uint32_t& value, int& n_remain,
                      std::vector<std::uint32_t>& out);

/// Nothing for what is no character.
void append_utf8(std::uint32_t code_point, std::string& out);

/// A token's text.
struct GrammarPiece {
  const std::uint32_t* code_points = nullptr;  ///< whole characters, then 0
  std::uint32_t partial_value = 0;             ///< of the character that the text ends within
  int n_remain = 0;    ///< bytes that it lacks; -1 for a text that is no UTF-8, or too long
  bool empty = false;  ///< a control token: it has no text
  Token token = -1;
  const std::string* spelling = nullptr;  ///< of a control token that has one nevertheless
};

/// Text and characters of a control token that is to have them.
class SpelledPiece {
 public:
  explicit SpelledPiece(std::string text);
  GrammarPiece piece() const;

 private:
  std::string text_;
  std::vector<std::uint32_t> code_points_;
  std::uint32_t value_ = 0;
  int n_remain_ = 0;
};

/// Immutable.
class GrammarVocabulary {
 public:
  explicit GrammarVocabulary(const InferenceEngine& engine);

  std::size_t size() const noexcept { return entries_.size(); }
  bool has(Token token) const noexcept {
    return token >= 0 && static_cast<std::size_t>(token) < entries_.size();
  }
  bool is_eog(Token token) const noexcept {
    return entries_[static_cast<std::size_t>(token)].is_eog;
  }
  GrammarPiece piece(Token token) const noexcept;
  std::string text(const GrammarPiece& piece) const;

 private:
  struct Entry {
    std::uint32_t code_points = 0;  // where they begin
    std::uint32_t text = 0;         // likewise
    std::uint32_t partial_value = 0;
    std::uint32_t text_size = 0;
    std::int8_t n_remain = 0;
    bool empty = false;
    bool is_eog = false;
  };

  std::vector<Entry> entries_;
  std::vector<std::uint32_t> code_points_;
  std::string texts_;
};

/// That of `engine`, made at the first use.
std::shared_ptr<const GrammarVocabulary> grammar_vocabulary(const InferenceEngine& engine);

}  // namespace pronk::inline v0
