// What keeps a generation to a grammar (GBNF, see llama.cpp's grammars/README.md).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pronk/engine.h"
#include "pronk/params.h"

namespace pronk::inline v0 {

/// What the model has to say for a lazy grammar to begin to hold.
struct GrammarTrigger {
  std::string text;      ///< a text, or a regular expression
  bool pattern = false;  ///< it is one: the grammar holds from its first group on
};

struct GrammarSpec {
  std::string gbnf;
  std::string prefix;  ///< what the prompt already has of the text that the grammar is for
  bool lazy = false;   ///< holds from a trigger on only
  std::vector<GrammarTrigger> triggers;
  bool of_schemas = false;  ///< made of JSON schemas and of formats of calls, not by a user
};

/// The state of one generation. One thread at a time; different ones may be used at once.
class Grammar {
 public:
  virtual ~Grammar() = default;
  /// Whether `token` may come next. Cheap.
  virtual bool allows(Token token) const = 0;
  /// Sets the logits of all tokens that may not come next to -infinity; returns how many others
  /// with a finite logit there are. Takes milliseconds.
  virtual std::size_t mask(std::span<float> logits) const = 0;
  /// Takes a token. Throws GrammarError when it may not come next, or when the grammar allows so
  /// many readings of the text that following them takes too long.
  virtual void accept(Token token) = 0;
  /// The text is complete, and nothing can follow it.
  virtual bool finished() const = 0;
  /// Takes the tokens that have to come next, where only one text can, and returns them. The last
  /// one of that text is left out: it might be another one together with what follows.
  virtual std::vector<Token> take_forced() { return {}; }
};

/// `shown` are the control tokens whose spelling belongs to the text, ascending; no other control
/// token is ever allowed. `engine` has to outlive it. Throws GrammarError with the reason.
std::unique_ptr<Grammar> make_grammar(const InferenceEngine& engine, const GrammarSpec& spec,
                                      const std::vector<Token>& shown);

/// The grammar of the JSON texts that a JSON schema admits. Throws GrammarError with the reason.
std::string grammar_of_schema(std::string_view json_schema);

}  // namespace pronk::inline v0
