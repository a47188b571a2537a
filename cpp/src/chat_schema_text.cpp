#include "chat_schema_text.h"

#include <algorithm>
#include <map>
#include <optional>

#include "schema_pattern.h"

namespace pronk::inline v0 {
namespace {

constexpr std::size_t kMaxStates = 4096;
// Of a pattern and a length together: a schema may have many of them.
constexpr std::size_t kMaxStatesWithLength = 1024;

// Days that there are, from year 1 on, as Python and others have them.
#define PRONK_DATE                                                                         \
  "(?:(?:[0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})-"              \
  "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)" \
  "|02-(?:0[1-9]|1[0-9]|2[0-8]))"                                                          \
  "|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)"
#define PRONK_TIME                                             \
  "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{3})?" \
  "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define PRONK_BYTE "(?:[0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])"

// A pattern for those of a format that every reader takes; null for other formats.
const char* format_pattern(const std::string& format) {
  static const std::map<std::string, const char*> kPatterns = {
      {"date", "^" PRONK_DATE "$"},
      {"time", "^" PRONK_TIME "$"},
      {"date-time", "^" PRONK_DATE "T" PRONK_TIME "$"},
      {"duration",
       "^P(?:[0-9]{1,4}D|(?:[0-9]{1,4}D)?T(?:[0-9]{1,4}H(?:[0-9]{1,4}M)?(?:[0-9]{1,4}S)?"
       "|[0-9]{1,4}M(?:[0-9]{1,4}S)?|[0-9]{1,4}S))$"},
      {"ipv4", "^(?:" PRONK_BYTE "\\.){3}" PRONK_BYTE "$"},
      {"uuid", "^[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"},
  };
  const auto found = kPatterns.find(format);
  return found == kPatterns.end() ? nullptr : found->second;
}

#undef PRONK_DATE
#undef PRONK_TIME
#undef PRONK_BYTE

std::optional<std::string> pattern_of(const std::string& format) {
  if (format.size() == 5 && format.starts_with("uuid") && format[4] >= '1' && format[4] <= '8') {
    return "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-" + format.substr(4) +
           "[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$";
  }
  const char* pattern = format_pattern(format);
  return pattern == nullptr ? std::nullopt : std::optional<std::string>(pattern);
}

// Nothing where it cannot be followed, and need not be.
std::optional<Pattern> read(const SchemaDocument& document, const std::string& pattern,
                            const std::string& place) {
  try {
    return read_pattern(pattern);
  } catch (const PatternError& error) {
    if (error.malformed) {
      document.refuse(place, error.got, "a regular expression", "correct it");
    }
    document.unsupported(place, error.got);
  } catch (const AutomatonTooLarge& error) {
    document.unsupported(place, "a pattern with " + std::string(error.what()));
  }
  return std::nullopt;
}

}  // namespace

bool limits_text(const SchemaNode& node) {
  return !node.patterns.empty() ||
         std::any_of(node.formats.begin(), node.formats.end(),
                     [](const auto& format) { return pattern_of(format.text).has_value(); });
}

Dfa text_of(const SchemaDocument& document, const SchemaNode& node, std::vector<Term> terms) {
  CodePoints alphabet = text_characters();
  const auto add = [&](const std::string& text, const std::string& place) {
    std::optional<Pattern> pattern = read(document, text, place);
    if (!pattern) return;
    alphabet = alphabet & pattern->alphabet;
    for (Term& term : pattern->terms) terms.push_back(std::move(term));
  };
  for (const auto& pattern : node.patterns) add(pattern.text, pattern.place);
  for (const auto& format : node.formats) {
    if (const auto pattern = pattern_of(format.text)) add(*pattern, format.place);
  }
  // Together with a length, a pattern takes the product of both in states.
  const std::size_t min = std::min(node.length.min, kMaxSchemaCount);
  const bool limited = node.length.max != SchemaNode::kNoLimit;
  for (std::size_t max = std::min(node.length.max, kMaxSchemaCount);;
       max = std::max(min, max / 2)) {
    std::vector<Term> all = terms;
    if (limited || min > 0) {
      const Regex characters =
          Regex::repeat(Regex::of(text_characters()), min, limited ? max : Regex::kNoLimit);
      all.push_back({nfa_of(characters), false});
    }
    const std::string& place = node.patterns.empty() ? node.place : node.patterns[0].place;
    const std::size_t most = limited ? kMaxStatesWithLength : kMaxStates;
    try {
      Dfa dfa = intersect(all, alphabet, most);
      document.spend(dfa.states.size(), place);
      return dfa;
    } catch (const AutomatonTooLarge& error) {
      document.spend(most, place);
      if (limited && max > std::max<std::size_t>(min, 1)) continue;
      document.unsupported(place, "a pattern with " + std::string(error.what()));
      return intersect({{nfa_of(Regex::repeat(Regex::of(text_characters()), 0)), false}},
                       text_characters());
    }
  }
}

bool matches_pattern(const SchemaDocument& document, const SchemaNode::Text& pattern,
                     const std::string& text) {
  const std::optional<Pattern> read_one = read(document, pattern.text, pattern.place);
  if (!read_one) return false;
  try {
    const Dfa dfa = intersect(read_one->terms, read_one->alphabet, kMaxStates);
    document.spend(dfa.states.size(), pattern.place);
    return dfa.matches(code_points_of(text));
  } catch (const AutomatonTooLarge& error) {
    document.spend(kMaxStates, pattern.place);
    document.unsupported(pattern.place, "a pattern with " + std::string(error.what()));
    return false;
  }
}

}  // namespace pronk::inline v0
