#include "automaton_rules.h"

#include <map>

namespace pronk::inline v0 {
namespace {

// What a string of JSON has as it is. All else is escaped, in one way only.
const CodePoints kRaw = {{' ', '!'}, {'#', '['}, {']', '~'}, {0x80, CodePoints::kLast}};

void append_hex(std::string& out, char32_t c, int digits) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) {
    out += "0123456789abcdef"[(c >> shift) & 0xF];
  }
}

void append_character(std::string& out, char32_t c) {
  const bool plain = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
  if (plain) {
    out += static_cast<char>(c);
  } else if (c < 0x100) {
    out += "\\x";
    append_hex(out, c, 2);
  } else if (c < 0x10000) {
    out += "\\u";
    append_hex(out, c, 4);
  } else {
    out += "\\U";
    append_hex(out, c, 8);
  }
}

std::string in_brackets(const CodePoints& set) {
  std::string out = "[";
  for (const auto& range : set.ranges()) {
    append_character(out, range.first);
    if (range.last == range.first) continue;
    if (range.last > range.first + 1) out += '-';
    append_character(out, range.last);
  }
  return out + "]";
}

// How a string of JSON has the characters of `set`.
std::string in_json(const CodePoints& set) {
  static const std::map<char32_t, char> kShort = {
      {'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}};
  const CodePoints raw = set & kRaw;
  std::string out = raw.empty() ? "" : in_brackets(raw);
  const auto way = [&](const std::string& text) { out += (out.empty() ? "" : " | ") + text; };
  CodePoints letters;
  CodePoints by_number[8];
  for (char32_t c = 0; c < 0x80; ++c) {
    if (!set.contains(c) || kRaw.contains(c)) continue;
    if (const auto found = kShort.find(c); found != kShort.end()) {
      letters.add(static_cast<char32_t>(found->second), static_cast<char32_t>(found->second));
    } else {
      const auto digit = static_cast<char32_t>("0123456789abcdef"[c & 0xF]);
      by_number[c >> 4].add(digit, digit);
    }
  }
  if (!letters.empty()) way("[\\\\] " + in_brackets(letters));
  for (int high = 0; high < 8; ++high) {
    if (by_number[high].empty()) continue;
    way("\"\\\\u00" + std::to_string(high) + "\" " + in_brackets(by_number[high]));
  }
  return out;
}

}  // namespace

std::string rules_of(const Dfa& dfa, const std::string& name, Spelling spelling) {
  const bool json = spelling == Spelling::kJsonString;
  std::string sets;
  std::map<CodePoints, std::string> named;
  const auto spelled = [&](const CodePoints& set) {
    if (!json) return in_brackets(set);
    const auto [at, is_new] = named.emplace(set, "");
    if (is_new) {
      std::string text = in_json(set);
      if ((set & kRaw) == set && set.ranges().size() < 4) {
        at->second = std::move(text);
      } else {
        at->second = name + "-c" + std::to_string(named.size());
        sets += at->second + " ::= " + text + "\n";
      }
    }
    return at->second;
  };
  const auto state_name = [&](std::size_t i) { return name + "-" + std::to_string(i); };
  std::string out = name + " ::= ";
  out += json ? "\"\\\"\" " + state_name(0) + " \"\\\"\"\n" : state_name(0) + "\n";
  for (std::size_t i = 0; i < dfa.states.size(); ++i) {
    const Dfa::State& state = dfa.states[i];
    // Without edges it is the end, which is not referred to.
    if (state.edges.empty() && i > 0) continue;
    out += state_name(i) + " ::=";
    // Nothing comes first: the parser would take the next line for what follows a last '|'.
    if (state.accepting) out += state.edges.empty() ? " \"\"" : " |";
    bool first = true;
    for (const auto& edge : state.edges) {
      if (!first) out += " |";
      first = false;
      out += " " + spelled(edge.set);
      if (!dfa.states[edge.to].edges.empty()) out += " " + state_name(edge.to);
    }
    out += "\n";
  }
  return out + sets;
}

}  // namespace pronk::inline v0
