// The vocabulary of a scripted model and the rule by which it continues a text.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "pronk/params.h"
#include "pronk/testing.h"

namespace pronk::inline v0 {

/// A token and the position that it was decoded at.
struct ScriptedEntry {
  std::int32_t pos = 0;
  Token token = 0;
};

/// What the model sees when it predicts the next token. Sliding-window and hybrid memories keep a
/// sequence twice, and both copies must be right: `second` is what the window, or the recurrent
/// state, holds.
struct ScriptedView {
  std::vector<ScriptedEntry> first;
  std::vector<ScriptedEntry> second;
};

/// Immutable but for the scripts; thread-safe.
class ScriptedLanguage {
 public:
  explicit ScriptedLanguage(const testing::ScriptedOptions& options);

  std::int32_t n_vocab() const noexcept { return bos() + 3; }
  Token bos() const noexcept { return static_cast<Token>(pieces_.size()); }
  Token eos() const noexcept { return bos() + 1; }
  Token eot() const noexcept { return bos() + 2; }
  MemoryKind memory_kind() const noexcept { return memory_kind_; }
  std::int32_t n_swa() const noexcept { return n_swa_; }

  std::vector<Token> tokenize(std::string_view text, bool add_special, bool parse_special) const;
  void append_piece(Token token, bool special, std::string& out) const;

  void script(std::span<const Token> prompt, std::span<const Token> completion);
  std::vector<Token> expected(std::span<const Token> prompt, std::int32_t n) const;

  /// Fills n_vocab() different logits; the highest is the greedy choice.
  void fill_logits(const ScriptedView& view, std::span<float> row) const;

 private:
  std::uint64_t hash(const ScriptedView& view) const;
  std::uint64_t hash_of_text(std::span<const Token> tokens) const;
  Token winner(std::uint64_t hash) const;
  void check_tokens(const char* what, std::span<const Token> tokens) const;

  std::vector<std::string> pieces_;
  std::vector<Token> alphabet_;                           // what unscripted greedy text is made of
  std::unordered_map<std::string_view, Token> token_of_;  // keys live in pieces_
  std::size_t longest_piece_ = 0;
  MemoryKind memory_kind_;
  std::int32_t n_swa_;
  bool add_bos_;
  std::uint64_t seed_;

  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, Token>
      scripted_;  // next token by hash of the text; guarded by mutex_
};

}  // namespace pronk::inline v0
