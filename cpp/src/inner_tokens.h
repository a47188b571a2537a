// Tokens of text that stands inside of another text.
#pragma once

#include <string>
#include <vector>

#include "pronk/engine.h"

namespace pronk::inline v0 {

/// Tokenizes `text` as a part that is not the beginning: without the space that some vocabularies
/// put before a text.
std::vector<Token> tokenize_inner(const InferenceEngine& engine, const std::string& text,
                                  bool parse_special);

}  // namespace pronk::inline v0
