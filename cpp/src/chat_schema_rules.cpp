#include "chat_schema_rules.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "regex_tree.h"

namespace pronk::inline v0 {
namespace {

constexpr std::size_t kIdDigits = 6;
// Those that are used may have a sixteenth of it.
constexpr std::size_t kMaxBytes = std::size_t{1} << 24;

// Rules that every conversion brings along, and what they ought to be: no half of a surrogate pair,
// no number that is too large for a double.
constexpr std::pair<std::string_view, std::string_view> kBetter[] = {
    {R"([^"\\\x7F\x00-\x1F] | [\\] (["\\bfnrt] | "u" [0-9a-fA-F]{4}))",
     R"([^"\\\x7F\x00-\x1F] | [\\] (["\\bfnrt] | "u" ([0-9a-cA-CefEF] [0-9a-fA-F]{3} | )"
     R"([dD] [0-7] [0-9a-fA-F]{2})))"},
    {R"(("-"? integral-part) ("." decimal-part)? ([eE] [-+]? integral-part)?)",
     R"(("-"? integral-part) ("." decimal-part)? ([eE] [-+]? [0-9]{1,2})?)"},
};

std::string padded(std::size_t id) {
  const std::string digits = std::to_string(id);
  return std::string(kIdDigits - std::min(kIdDigits, digits.size()), '0') + digits;
}

}  // namespace

SchemaRules::SchemaRules(const std::vector<std::string_view>& texts) : mark_("pronk") {
  const auto used = [&](const std::string& what) {
    return std::any_of(texts.begin(), texts.end(), [&](std::string_view text) {
      return text.find(what) != std::string_view::npos;
    });
  };
  while (used(mark_)) mark_ += 'k';
  int number = 710;
  do number_ = std::to_string(++number) + "0";
  while (used(number_));
}

std::size_t SchemaRules::add(const Dfa& dfa, Spelling spelling, std::string key) {
  key += rules_of(dfa, "r", spelling);
  n_bytes_ += key.size();
  if (n_bytes_ > kMaxBytes) {
    throw AutomatonTooLarge("more than " + std::to_string(kMaxBytes) + " bytes of rules");
  }
  const auto [at, is_new] = numbers_.emplace(std::move(key), rules_.size());
  if (is_new) {
    rules_.push_back({rules_of(dfa, mark_ + "-" + std::to_string(at->second), spelling), ""});
  }
  return at->second;
}

common_json SchemaRules::stand_in(const Dfa& dfa, Spelling spelling) {
  const bool json = spelling == Spelling::kJsonString;
  const std::string id = padded(add(dfa, spelling, json ? "s" : "n"));
  common_json schema = common_json::object();
  // The type is for readers of calls that go by it.
  schema["type"] = json ? "string" : "number";
  if (json) {
    schema["const"] = mark_ + id;
  } else {
    schema["const"] = std::stoll(number_ + id);
  }
  return schema;
}

std::string SchemaRules::names(const Dfa& dfa, std::size_t min, std::size_t max) {
  std::string count;
  if (max != 1) {
    const bool endless = max == Regex::kNoLimit;
    count = "{" + std::to_string(min > 0 ? min - 1 : 0) + "," +
            (endless ? "" : std::to_string(max - 1)) + "}";
  }
  const std::size_t id = add(dfa, Spelling::kJsonString, "k" + count + " ");
  rules_[id].repeated = count;
  return mark_ + padded(id);
}

std::string SchemaRules::finished(const std::string& gbnf) const {
  std::string out;
  std::set<std::size_t> used;
  // Puts the names of rules for the stand-ins in `text`.
  const auto replace = [&](std::string text) {
    for (const std::string& begin : {"\"\\\"" + mark_, "\"" + number_}) {
      const std::string end = begin[1] == '\\' ? "\\\"\"" : "\"";
      for (std::size_t at = 0; (at = text.find(begin, at)) != std::string::npos;) {
        const std::size_t digits = at + begin.size();
        std::size_t id = 0;
        std::from_chars(text.data() + digits, text.data() + text.size(), id);
        if (id < rules_.size() && text.compare(digits + kIdDigits, end.size(), end) == 0) {
          used.insert(id);
          const std::string name = mark_ + "-" + std::to_string(id);
          text.replace(at, digits + kIdDigits + end.size() - at, name);
          at += name.size();
        } else {
          at = digits;
        }
      }
    }
    return text;
  };
  for (std::size_t begin = 0; begin < gbnf.size();) {
    const std::size_t end = std::min(gbnf.find('\n', begin), gbnf.size());
    std::string line = gbnf.substr(begin, end - begin);
    begin = end + 1;
    constexpr std::string_view kIs = " ::= ";
    const std::size_t is = line.find(kIs);
    if (is != std::string::npos) {
      const std::string head = line.substr(0, is + kIs.size());
      std::string body = line.substr(is + kIs.size());
      for (const auto& [theirs, better] : kBetter) {
        if (body == theirs) body = better;
      }
      const std::string key = "\"\\\"" + mark_;
      std::size_t id = rules_.size();
      if (body.starts_with(key)) {
        std::from_chars(body.data() + key.size(), body.data() + body.size(), id);
      }
      body = replace(std::move(body));
      // A member: the rule for its name, a colon, the rule for its value.
      if (id < rules_.size() && !rules_[id].repeated.empty()) {
        body += " ( \",\" space " + body + " )" + rules_[id].repeated;
      }
      line = head + body;
    }
    out += line + "\n";
  }
  for (const std::size_t id : used) out += rules_[id].rules;
  return out;
}

}  // namespace pronk::inline v0
