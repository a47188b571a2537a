// The grammar machinery of llama.cpp, kept away from what in it throws, aborts and explodes.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <regex>
#include <utility>

#include "engine_impl.h"
#include "grammar.h"
#include "grammar_rules.h"
#include "grammar_scan.h"
#include "grammar_vocabulary.h"
#include "inner_tokens.h"
#include "llama_grammar_walk.h"
#include "pronk/error.h"
#include "src/llama-grammar.h"

namespace pronk::inline v0 {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
// Parts in a row that may all be left out: the machine tries every way through them, again for each
// character of a token. In grammars of schemas what can be left out begins differently each time,
// so that a character leaves one way open.
constexpr std::size_t kMostSkipped = 32;
constexpr std::size_t kMostSkippedInSchemas = kMaxStacks;
// What a pattern looks at: the machine behind it recurses once per character.
constexpr std::size_t kPatternWindow = 4096;
// What is taken at once of a text without a choice.
constexpr std::size_t kMaxForcedBytes = 512;
// The rule that stands for the beginning of every text.
constexpr std::uint32_t kBegin = 1;

[[noreturn]] void refuse(const std::string& got, const std::string& expected,
                         const std::string& advice) {
  throw GrammarError("grammar: got " + got + ", expected " + expected + ", " + advice);
}

// The first line of what the parser says, without the rest of the grammar that it quotes.
std::string reason_of(const std::exception& error) {
  constexpr std::size_t kLongest = 120;
  std::string reason = error.what();
  reason = reason.substr(0, reason.find_first_of("\r\n"));
  if (reason.size() > kLongest) {
    std::size_t end = kLongest;
    while (end > 0 && (static_cast<unsigned char>(reason[end]) & 0xc0) == 0x80) --end;
    reason = reason.substr(0, end) + "...";
  }
  return reason;
}

void check_references(const llama_grammar_parser& parser, std::size_t n_vocab,
                      std::size_t most_skipped) {
  std::map<std::uint32_t, std::string> names;
  for (const auto& [name, id] : parser.symbol_ids) names[id] = name;
  std::vector<RuleShape> shapes(parser.rules.size());
  for (std::size_t i = 0; i < parser.rules.size(); ++i) {
    shapes[i].emplace_back();
    for (const llama_grammar_element& element : parser.rules[i]) {
      if (element.type == LLAMA_GRETYPE_ALT) {
        shapes[i].emplace_back();
      } else if (element.type == LLAMA_GRETYPE_RULE_REF) {
        if (element.value >= parser.rules.size() || parser.rules[element.value].empty()) {
          refuse("a reference to the rule '" + names[element.value] + "'",
                 "each rule to be defined", "define it or quote it if it is text");
        }
        shapes[i].back().push_back(element.value);
      } else if (element.type != LLAMA_GRETYPE_END) {
        if (is_token(element) && element.value >= n_vocab) {
          refuse("the token <[" + std::to_string(element.value) + "]>",
                 "an id below " + std::to_string(n_vocab), "use the model's tokenizer");
        }
        shapes[i].back().push_back(-1);
      }
    }
  }
  if (const std::int64_t rule = find_left_recursion(shapes); rule >= 0) {
    refuse("the rule '" + names[static_cast<std::uint32_t>(rule)] + "' that can begin with itself",
           "rules that take up text before they come back to themselves", "rewrite it");
  }
  if (const std::int64_t rule = find_long_skip(shapes, most_skipped); rule >= 0) {
    refuse("the rule '" + names[static_cast<std::uint32_t>(rule)] + "' with more than " +
               std::to_string(most_skipped) + " parts in a row that may be left out",
           "fewer", "repeat what is not empty, as in [a-z]{0,20}");
  }
}

// Parses rule by rule: the parser's own loop prints its errors.
llama_grammar_rules parse_rules(const std::string& text, std::size_t n_vocab,
                                std::size_t most_skipped) {
  llama_grammar_parser parser;
  try {
    const char* at = text.c_str();
    while (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\n' || *at == '#') {
      if (*at == '#') {
        while (*at != '\0' && *at != '\r' && *at != '\n') ++at;
      } else {
        ++at;
      }
    }
    while (*at != '\0') at = parser.parse_rule(at);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    refuse("'" + reason_of(error) + "' from the parser", "GBNF",
           "see llama.cpp's grammars/README.md");
  }
  const auto root = parser.symbol_ids.find("root");
  if (root == parser.symbol_ids.end() || root->second >= parser.rules.size() ||
      parser.rules[root->second].empty()) {
    refuse("no rule 'root'", "one, where every text begins", "add root ::= ...");
  }
  check_references(parser, n_vocab, most_skipped);
  // A rule for the beginning, at the end of the list.
  parser.rules.push_back({{LLAMA_GRETYPE_CHAR, kBegin},
                          {LLAMA_GRETYPE_RULE_REF, root->second},
                          {LLAMA_GRETYPE_END, 0}});
  return std::move(parser.rules);
}

class LlamaGrammar final : public Grammar {
 public:
  LlamaGrammar(const InferenceEngine& engine, const GrammarSpec& spec,
               const std::vector<Token>& shown)
      : engine_(engine),
        vocabulary_(grammar_vocabulary(engine)),
        spelled_(spell(engine, shown)),
        waiting_(spec.lazy),
        grammar_{nullptr,
                 parse_rules(scan(engine, spec.gbnf), vocabulary_->size(),
                             spec.of_schemas ? kMostSkippedInSchemas : kMostSkipped),
                 {},
                 {},
                 false,
                 false,
                 {},
                 {},
                 {},
                 {}} {
    grammar_.stacks = {{grammar_.rules.back().data()}};
    grammar_.stacks = GrammarWalk(grammar_.rules).after(grammar_.stacks, kBegin);
    if (grammar_.stacks.empty()) {
      refuse("rules that no text can follow", "at least one text", "rewrite them");
    }
    if (spec.lazy) {
      set_triggers(spec.triggers);
    } else if (!accept_text(spec.prefix)) {
      refuse("rules that do not admit what the prompt begins with", "rules for this template",
             "pass another chat_template");
    }
  }

  bool allows(Token token) const override {
    if (!vocabulary_->has(token)) return false;
    if (waiting_) return true;
    if (vocabulary_->is_eog(token)) return may_end();
    const GrammarPiece piece = piece_of(token);
    if (piece.empty) return allows_by_number(token);
    std::vector<std::uint32_t> storage;
    return reject({candidate(0, token, piece, &storage)}).empty();
  }

  std::size_t mask(std::span<float> logits) const override {
    if (waiting_) return logits.size();
    std::size_t n_left = 0;
    std::vector<std::vector<std::uint32_t>> storage;
    llama_grammar_candidates candidates;
    candidates.reserve(logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (!(logits[i] > kMinusInfinity)) continue;
      const auto token = static_cast<Token>(i);
      if (vocabulary_->is_eog(token)) {
        if (may_end()) {
          ++n_left;
        } else {
          logits[i] = kMinusInfinity;
        }
        continue;
      }
      const GrammarPiece piece = piece_of(token);
      if (piece.empty) {
        if (allows_by_number(token)) {
          ++n_left;
        } else {
          logits[i] = kMinusInfinity;
        }
        continue;
      }
      std::vector<std::uint32_t>* own = nullptr;
      if (grammar_.partial_utf8.n_remain > 0) own = &storage.emplace_back();
      candidates.push_back(candidate(i, token, piece, own));
    }
    n_left += candidates.size();
    const llama_grammar_candidates rejected = reject(candidates);
    for (const llama_grammar_candidate& each : rejected) logits[each.index] = kMinusInfinity;
    return n_left - rejected.size();
  }

  void accept(Token token) override {
    if (!allows(token)) {
      refuse("token " + std::to_string(token), "one that the grammar allows",
             "report this, it should not happen");
    }
    if (waiting_) return wait_with(token);
    if (vocabulary_->is_eog(token)) return;
    const GrammarPiece piece = piece_of(token);
    const bool by_number =
        std::any_of(grammar_.stacks.begin(), grammar_.stacks.end(),
                    [](const auto& stack) { return !stack.empty() && is_token(*stack.back()); });
    if (by_number) return accept_by_number(token, piece);
    std::vector<std::uint32_t> storage;
    const llama_grammar_candidate each = candidate(0, token, piece, &storage);
    GrammarWalk walk(grammar_.rules);
    for (const std::uint32_t* at = each.code_points; *at != 0; ++at) {
      grammar_.stacks = walk.after(grammar_.stacks, *at);
      check_stacks();
    }
    grammar_.partial_utf8 = each.partial_utf8;
  }

  std::vector<Token> take_forced() override {
    if (waiting_ || grammar_.partial_utf8.n_remain != 0) return {};
    const std::string text = forced_text();
    std::vector<Token> tokens = tokenize_inner(engine_, text, false);
    if (tokens.size() < 2) return {};
    std::string spelled;
    for (const Token token : tokens) engine_.impl().append_piece(token, false, spelled);
    if (spelled != text) return {};
    tokens.pop_back();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (!allows(tokens[i])) {
        tokens.resize(i);
        break;
      }
      accept(tokens[i]);
    }
    return tokens;
  }

  bool finished() const override {
    return !waiting_ && std::all_of(grammar_.stacks.begin(), grammar_.stacks.end(),
                                    [](const auto& stack) { return stack.empty(); });
  }

 private:
  static std::string scan(const InferenceEngine& engine, const std::string& gbnf) {
    return scan_grammar(gbnf, [&](std::string_view spelling) {
      const std::vector<Token> tokens = engine.tokenize(spelling, false, true);
      return tokens.size() == 1 ? tokens[0] : -1;
    });
  }

  static std::map<Token, SpelledPiece> spell(const InferenceEngine& engine,
                                             const std::vector<Token>& shown) {
    std::map<Token, SpelledPiece> result;
    for (const Token token : shown) {
      std::string text;
      engine.impl().append_piece(token, true, text);
      result.emplace(token, SpelledPiece(text));
    }
    return result;
  }

  GrammarPiece piece_of(Token token) const {
    if (!spelled_.empty()) {
      const auto found = spelled_.find(token);
      if (found != spelled_.end()) return found->second.piece();
    }
    return vocabulary_->piece(token);
  }

  bool may_end() const {
    return grammar_.partial_utf8.n_remain == 0 &&
           std::any_of(grammar_.stacks.begin(), grammar_.stacks.end(),
                       [](const auto& stack) { return stack.empty(); });
  }

  // A token that has no text can only be asked for by its number.
  bool allows_by_number(Token token) const {
    return std::any_of(grammar_.stacks.begin(), grammar_.stacks.end(), [&](const auto& stack) {
      return !stack.empty() && is_token(*stack.back()) && matches_token(*stack.back(), token);
    });
  }

  // `storage` takes the characters where the last token ended inside of one.
  llama_grammar_candidate candidate(std::size_t index, Token token, const GrammarPiece& piece,
                                    std::vector<std::uint32_t>* storage) const {
    if (grammar_.partial_utf8.n_remain <= 0) {
      return {index, piece.code_points, {piece.partial_value, piece.n_remain}, token};
    }
    llama_partial_utf8 partial = grammar_.partial_utf8;
    for (const char c : vocabulary_->text(piece)) {
      if (!decode_utf8_byte(static_cast<unsigned char>(c), partial.value, partial.n_remain,
                            *storage) ||
          storage->size() > kMaxTokenCharacters) {
        partial.n_remain = -1;
        storage->clear();
        break;
      }
    }
    storage->push_back(0);
    return {index, storage->data(), partial, token};
  }

  llama_grammar_candidates reject(const llama_grammar_candidates& candidates) const {
    llama_grammar_candidates rest;
    rest.reserve(candidates.size());
    llama_grammar_candidates rejected;
    for (const llama_grammar_candidate& each : candidates) {
      (each.partial_utf8.n_remain < 0 ? rejected : rest).push_back(each);
    }
    rest = GrammarWalk(grammar_.rules).reject(grammar_.stacks, std::move(rest));
    rejected.insert(rejected.end(), rest.begin(), rest.end());
    return rejected;
  }

  // The only text that can come next, as far as there is only one.
  std::string forced_text() {
    const llama_grammar_stacks stacks = grammar_.stacks;
    std::string text;
    GrammarWalk walk(grammar_.rules);
    while (text.size() < kMaxForcedBytes) {
      std::uint32_t code_point = 0;
      for (const llama_grammar_stack& stack : grammar_.stacks) {
        const std::uint32_t next = stack.empty() ? 0 : only_character(stack.back());
        if (next == 0 || (code_point != 0 && next != code_point)) {
          grammar_.stacks = stacks;
          return text;
        }
        code_point = next;
      }
      grammar_.stacks = walk.after(grammar_.stacks, code_point);
      if (grammar_.stacks.empty()) break;
      append_utf8(code_point, text);
    }
    grammar_.stacks = stacks;
    return text;
  }

  // 0 where there is more than one, or something else.
  static std::uint32_t only_character(const llama_grammar_element* element) {
    if (element->type != LLAMA_GRETYPE_CHAR) return 0;
    const llama_gretype next = element[1].type;
    const bool several = next == LLAMA_GRETYPE_CHAR_ALT || next == LLAMA_GRETYPE_CHAR_RNG_UPPER;
    return several ? 0 : element->value;
  }

  void check_stacks() const {
    if (grammar_.stacks.empty()) {
      refuse("a text that it does not admit", "one that it does",
             "report this, it should not happen");
    }
  }

  void accept_by_number(Token token, const GrammarPiece& piece) {
    if (piece.empty) {
      std::erase_if(grammar_.stacks,
                    [](const auto& stack) { return stack.empty() || !is_token(*stack.back()); });
    }
    std::vector<std::uint32_t> storage;
    const llama_grammar_candidate each = candidate(0, token, piece, &storage);
    std::size_t n = 0;
    while (each.code_points[n] != 0) ++n;
    grammar_.stacks =
        GrammarWalk(grammar_.rules).after(grammar_.stacks, token, {each.code_points, n});
    grammar_.partial_utf8 = each.partial_utf8;
    check_stacks();
  }

  // Takes text rather than tokens. False, and nothing taken, where it does not follow the rules.
  bool accept_text(std::string_view text) {
    const llama_grammar_stacks stacks = grammar_.stacks;
    std::vector<std::uint32_t> code_points;
    std::uint32_t value = 0;
    int n_remain = 0;
    for (const char c : text) {
      if (!decode_utf8_byte(static_cast<unsigned char>(c), value, n_remain, code_points)) {
        return false;
      }
    }
    GrammarWalk walk(grammar_.rules);
    for (const std::uint32_t code_point : code_points) {
      grammar_.stacks = walk.after(grammar_.stacks, code_point);
      if (grammar_.stacks.empty()) {
        grammar_.stacks = stacks;
        return false;
      }
    }
    grammar_.partial_utf8 = {value, n_remain};
    return true;
  }

  void set_triggers(const std::vector<GrammarTrigger>& triggers) {
    for (const GrammarTrigger& trigger : triggers) {
      if (!trigger.pattern) {
        words_.push_back(trigger.text);
        longest_word_ = std::max(longest_word_, trigger.text.size());
        continue;
      }
      try {
        patterns_.push_back({trigger.text, std::regex(trigger.text)});
      } catch (const std::regex_error& error) {
        refuse("a trigger that is no regular expression (" + std::string(error.what()) + ")", "one",
               "pass another chat_template");
      }
    }
  }

  // Text goes by until a trigger comes.
  void wait_with(Token token) {
    const std::size_t old_size = said_.size();
    said_ += vocabulary_->text(piece_of(token));
    std::size_t begin = std::string::npos;
    const std::size_t from = old_size > longest_word_ ? old_size - longest_word_ : 0;
    for (const std::string& word : words_) begin = std::min(begin, said_.find(word, from));
    if (said_.size() <= kPatternWindow) {
      for (const auto& pattern : patterns_) begin = std::min(begin, pattern.find(said_));
    }
    if (begin == std::string::npos) return;
    // What was said already may go against the rules: then they do not hold.
    if (accept_text(std::string_view(said_).substr(begin))) waiting_ = false;
  }

  const InferenceEngine& engine_;
  const std::shared_ptr<const GrammarVocabulary> vocabulary_;
  const std::map<Token, SpelledPiece> spelled_;
  bool waiting_;
  llama_grammar grammar_;
  std::string said_;  // while waiting
  std::vector<std::string> words_;
  std::size_t longest_word_ = 0;
  std::vector<llama_grammar_trigger_pattern> patterns_;
};

}  // namespace

std::unique_ptr<Grammar> make_grammar(const InferenceEngine& engine, const GrammarSpec& spec,
                                      const std::vector<Token>& shown) {
  return std::make_unique<LlamaGrammar>(engine, spec, shown);
}

}  // namespace pronk::inline v0
