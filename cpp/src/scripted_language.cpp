#include "scripted_language.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "pronk/error.h"

namespace pronk::inline v0 {

namespace {

// Ranks of a larger vocabulary would collide in a float.
constexpr std::size_t kMaxPieces = 1 << 18;
constexpr std::array<std::string_view, 3> kSpecialPieces = {"<bos>", "<eos>", "<eot>"};

/// The finaliser of splitmix64 (Steele, Lea and Flood 2014).
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::uint64_t mix_in(std::uint64_t hash, const ScriptedEntry& entry) {
  const auto pos = static_cast<std::uint64_t>(static_cast<std::uint32_t>(entry.pos));
  return mix(hash ^ (pos << 32 | static_cast<std::uint32_t>(entry.token)));
}

bool keeps_twice(MemoryKind kind) {
  return kind == MemoryKind::kSlidingWindow || kind == MemoryKind::kHybrid;
}

std::vector<std::string> single_bytes() {
  std::vector<std::string> pieces;
  for (int byte = 0; byte < 256; ++byte) pieces.emplace_back(1, static_cast<char>(byte));
  return pieces;
}

}  // namespace

ScriptedLanguage::ScriptedLanguage(const testing::ScriptedOptions& options)
    : pieces_(options.pieces.empty() ? single_bytes() : options.pieces),
      memory_kind_(options.memory_kind),
      n_swa_(options.n_swa),
      add_bos_(options.add_bos),
      seed_(mix(options.seed)) {
  if (pieces_.size() > kMaxPieces) {
    throw InvalidArgumentError("pieces: got " + std::to_string(pieces_.size()) +
                               ", expected at most " + std::to_string(kMaxPieces));
  }
  if (memory_kind_ == MemoryKind::kNone) {
    throw InvalidArgumentError("memory_kind: got none, expected a memory that can hold a sequence");
  }
  if ((memory_kind_ == MemoryKind::kSlidingWindow) != (n_swa_ > 0) || n_swa_ < 0) {
    throw InvalidArgumentError("n_swa: got " + std::to_string(n_swa_) +
                               ", expected 1 or more with a sliding window, 0 without");
  }
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (pieces_[i].empty()) {
      throw InvalidArgumentError("pieces: got an empty text for token " + std::to_string(i) +
                                 ", expected at least one byte");
    }
    token_of_.try_emplace(pieces_[i], static_cast<Token>(i));
    longest_piece_ = std::max(longest_piece_, pieces_[i].size());
  }
  if (options.pieces.empty()) {
    // Readable, and whole UTF-8 after every token.
    for (Token letter = 'a'; letter <= 'z'; ++letter) alphabet_.push_back(letter);
    alphabet_.push_back(' ');
  } else {
    alphabet_.resize(pieces_.size());
    std::iota(alphabet_.begin(), alphabet_.end(), 0);
  }
}

std::vector<Token> ScriptedLanguage::tokenize(std::string_view text, bool add_special,
                                              bool parse_special) const {
  std::vector<Token> tokens;
  if (add_special && add_bos_) tokens.push_back(bos());
  std::size_t at = 0;
  while (at < text.size()) {
    const std::string_view rest = text.substr(at);
    if (parse_special) {
      const auto special = std::find_if(kSpecialPieces.begin(), kSpecialPieces.end(),
                                        [&](std::string_view s) { return rest.starts_with(s); });
      if (special != kSpecialPieces.end()) {
        tokens.push_back(bos() + static_cast<Token>(special - kSpecialPieces.begin()));
        at += special->size();
        continue;
      }
    }
    std::size_t length = std::min(longest_piece_, rest.size());
    auto found = token_of_.find(rest.substr(0, length));
    while (found == token_of_.end() && --length > 0) found = token_of_.find(rest.substr(0, length));
    if (length == 0) {
      throw InvalidArgumentError("tokenize: got a text with no piece for its byte " +
                                 std::to_string(at) + ", expected one made of the scripted pieces");
    }
    tokens.push_back(found->second);
    at += length;
  }
  return tokens;
}

void ScriptedLanguage::append_piece(Token token, bool special, std::string& out) const {
  if (token < bos()) {
    out += pieces_[static_cast<std::size_t>(token)];
  } else if (special) {
    out += kSpecialPieces[static_cast<std::size_t>(token - bos())];
  }
}

void ScriptedLanguage::check_tokens(const char* what, std::span<const Token> tokens) const {
  for (const Token token : tokens) {
    if (token < 0 || token >= n_vocab()) {
      throw InvalidArgumentError(std::string(what) + ": got token " + std::to_string(token) +
                                 ", expected 0 to " + std::to_string(n_vocab() - 1));
    }
  }
}

void ScriptedLanguage::script(std::span<const Token> prompt, std::span<const Token> completion) {
  check_tokens("prompt", prompt);
  check_tokens("completion", completion);
  if (prompt.empty()) {
    throw InvalidArgumentError("prompt: got no tokens, expected at least one to be decoded");
  }
  std::vector<Token> text(prompt.begin(), prompt.end());
  const std::lock_guard lock(mutex_);
  for (const Token next : completion) {
    scripted_[hash_of_text(text)] = next;
    text.push_back(next);
  }
  scripted_[hash_of_text(text)] = eos();
}

std::vector<Token> ScriptedLanguage::expected(std::span<const Token> prompt, std::int32_t n) const {
  check_tokens("prompt", prompt);
  if (prompt.empty() || n < 0) {
    throw InvalidArgumentError("expected: got a prompt of " + std::to_string(prompt.size()) +
                               " tokens and n=" + std::to_string(n) +
                               ", expected 1 token or more and n of 0 or more");
  }
  std::vector<Token> text(prompt.begin(), prompt.end());
  while (static_cast<std::int64_t>(text.size() - prompt.size()) < n) {
    const Token next = winner(hash_of_text(text));
    if (next == eos() || next == eot()) break;
    text.push_back(next);
  }
  return {text.begin() + static_cast<std::ptrdiff_t>(prompt.size()), text.end()};
}

std::uint64_t ScriptedLanguage::hash(const ScriptedView& view) const {
  std::uint64_t hash = seed_;
  for (const auto& entry : view.first) hash = mix_in(hash, entry);
  if (keeps_twice(memory_kind_)) {
    hash = mix(hash);
    for (const auto& entry : view.second) hash = mix_in(hash, entry);
  }
  return hash;
}

std::uint64_t ScriptedLanguage::hash_of_text(std::span<const Token> tokens) const {
  ScriptedView view;
  std::int32_t pos = 0;
  for (const Token token : tokens) view.first.push_back({pos++, token});
  if (keeps_twice(memory_kind_)) {
    const std::size_t visible =
        n_swa_ > 0 ? std::min(tokens.size(), static_cast<std::size_t>(n_swa_)) : tokens.size();
    view.second.assign(view.first.end() - static_cast<std::ptrdiff_t>(visible), view.first.end());
  }
  return hash(view);
}

Token ScriptedLanguage::winner(std::uint64_t hash) const {
  const std::lock_guard lock(mutex_);
  const auto scripted = scripted_.find(hash);
  return scripted != scripted_.end() ? scripted->second : alphabet_[hash % alphabet_.size()];
}

void ScriptedLanguage::fill_logits(const ScriptedView& view, std::span<float> row) const {
  const std::uint64_t h = hash(view);
  // A permutation of the ranks, so that no two pieces tie: rank(t) = (factor * t + shift) mod n.
  const std::uint64_t n = pieces_.size();
  std::uint64_t factor = mix(h) % n + 1;
  while (std::gcd(factor, n) != 1) ++factor;
  const std::uint64_t shift = mix(h + 1) % n;
  for (std::uint64_t token = 0; token < n; ++token) {
    const std::uint64_t rank = (factor * token + shift) % n;
    row[token] = -1.0f - 8.0f * static_cast<float>(rank) / static_cast<float>(n);
  }
  // Special tokens never come up by chance, whatever the temperature.
  row[n] = -102.0f;
  row[n + 1] = -100.0f;
  row[n + 2] = -101.0f;
  row[static_cast<std::size_t>(winner(h))] = 1.0f;
}

}  // namespace pronk::inline v0
