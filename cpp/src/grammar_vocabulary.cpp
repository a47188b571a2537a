#include "grammar_vocabulary.h"

#include <utility>

#include "engine_impl.h"

namespace pronk::inline v0 {

namespace {

// Whether a byte 80 to BF makes neither an overlong form nor a surrogate nor more than 10FFFF.
bool may_follow(unsigned char byte, std::uint32_t value, int n_remain) {
  if (n_remain == 3) return value == 0 ? byte >= 0x90 : value < 4 || byte < 0x90;
  // The second of three bytes: the third of four comes after a value of 0x10 or more.
  if (n_remain == 2 && value == 0) return byte >= 0xa0;
  if (n_remain == 2 && value == 0xd) return byte < 0xa0;
  return true;
}

}  // namespace

bool decode_utf8_byte(unsigned char byte, std::uint32_t& value, int& n_remain,
                      std::vector<std::uint32_t>& out) {
  if (n_remain > 0) {
    if ((byte & 0xc0) != 0x80 || !may_follow(byte, value, n_remain)) return false;
    value = value << 6 | (byte & 0x3f);
    --n_remain;
  } else if (byte < 0x80) {
    value = byte;
  } else if (byte >= 0xc2 && byte < 0xe0) {
    value = byte & 0x1f;
    n_remain = 1;
  } else if (byte >= 0xe0 && byte < 0xf0) {
    value = byte & 0x0f;
    n_remain = 2;
  } else if (byte >= 0xf0 && byte < 0xf5) {
    value = byte & 0x07;
    n_remain = 3;
  } else {
    return false;
  }
  if (n_remain == 0) {
    if (value == 0) return false;  // stands for the end
    out.push_back(value);
    value = 0;
  }
  return true;
}

void append_utf8(std::uint32_t code_point, std::string& out) {
  const auto tail = [&](int shift) {
    out += static_cast<char>(0x80 | (code_point >> shift & 0x3f));
  };
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    out += static_cast<char>(0xc0 | code_point >> 6);
    tail(0);
  } else if (code_point < 0x10000) {
    if (code_point >= 0xd800 && code_point < 0xe000) return;
    out += static_cast<char>(0xe0 | code_point >> 12);
    tail(6);
    tail(0);
  } else if (code_point < 0x110000) {
    out += static_cast<char>(0xf0 | code_point >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

namespace {

// Appends the characters of `text` and a 0. Where that is none that a grammar can follow,
// `n_remain` is -1.
void decode(const std::string& text, std::uint32_t& value, int& n_remain,
            std::vector<std::uint32_t>& out) {
  const std::size_t begin = out.size();
  for (const char c : text) {
    if (decode_utf8_byte(static_cast<unsigned char>(c), value, n_remain, out) &&
        out.size() - begin <= kMaxTokenCharacters) {
      continue;
    }
    out.resize(begin);
    n_remain = -1;
    break;
  }
  out.push_back(0);
}

}  // namespace

SpelledPiece::SpelledPiece(std::string text) : text_(std::move(text)) {
  decode(text_, value_, n_remain_, code_points_);
}

GrammarPiece SpelledPiece::piece() const {
  return {code_points_.data(), value_, n_remain_, text_.empty(), -1, &text_};
}

GrammarVocabulary::GrammarVocabulary(const InferenceEngine& engine) {
  const EngineImpl& impl = engine.impl();
  entries_.resize(static_cast<std::size_t>(engine.info().n_vocab));
  std::string text;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const auto token = static_cast<Token>(i);
    text.clear();
    impl.append_piece(token, false, text);
    Entry& entry = entries_[i];
    entry.code_points = static_cast<std::uint32_t>(code_points_.size());
    entry.text = static_cast<std::uint32_t>(texts_.size());
    entry.text_size = static_cast<std::uint32_t>(text.size());
    entry.empty = text.empty();
    entry.is_eog = impl.is_eog(token);
    int n_remain = 0;
    decode(text, entry.partial_value, n_remain, code_points_);
    // Bytes that may go on a character begun, though they begin none.
    entry.n_remain = static_cast<std::int8_t>(n_remain);
    texts_ += text;
  }
}

GrammarPiece GrammarVocabulary::piece(Token token) const noexcept {
  const Entry& entry = entries_[static_cast<std::size_t>(token)];
  return {code_points_.data() + entry.code_points,
          entry.partial_value,
          entry.n_remain,
          entry.empty,
          token,
          nullptr};
}

std::string GrammarVocabulary::text(const GrammarPiece& piece) const {
  if (piece.spelling != nullptr) return *piece.spelling;
  const Entry& entry = entries_[static_cast<std::size_t>(piece.token)];
  return texts_.substr(entry.text, entry.text_size);
}

std::shared_ptr<const GrammarVocabulary> grammar_vocabulary(const InferenceEngine& engine) {
  EngineImpl& impl = engine.impl();
  const std::lock_guard lock(impl.lazy_mutex);
  if (!impl.grammar_vocabulary) {
    impl.grammar_vocabulary = std::make_shared<const GrammarVocabulary>(engine);
  }
  return impl.grammar_vocabulary;
}

}  // namespace pronk::inline v0
