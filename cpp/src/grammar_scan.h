// Looks through a grammar before the parser does, which recurses, multiplies and trusts its input.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "pronk/params.h"

namespace pronk::inline v0 {

/// Returns `gbnf` with its tokens, <name>, replaced by their numbers, <[id]>. `token_of` gives the
/// id of a spelling, -1 for none. Throws GrammarError when it is too long, nested too deeply, or
/// its repetitions make it too large.
std::string scan_grammar(std::string_view gbnf,
                         const std::function<Token(std::string_view)>& token_of);

}  // namespace pronk::inline v0
