#include "inner_tokens.h"

#include <algorithm>
#include <cstddef>

#include "engine_impl.h"

namespace pronk::inline v0 {
namespace {

bool adds_space(const InferenceEngine& engine) {
  std::string text;
  for (const Token token : engine.impl().tokenize("a", false, false)) {
    engine.impl().append_piece(token, false, text);
  }
  return text == " a";
}

}  // namespace

std::vector<Token> tokenize_inner(const InferenceEngine& engine, const std::string& text,
                                  bool parse_special) {
  if (text.empty()) return {};
  if (adds_space(engine)) {
    const std::vector<Token> lead = engine.tokenize("\n", false, false);
    std::vector<Token> tokens = engine.tokenize("\n" + text, false, parse_special);
    if (tokens.size() >= lead.size() && std::equal(lead.begin(), lead.end(), tokens.begin())) {
      tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(lead.size()));
      return tokens;
    }
  }
  return engine.tokenize(text, false, parse_special);
}

}  // namespace pronk::inline v0
