// Messages and tools as OpenAI writes them, checked and made safe to render.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat.h"

namespace pronk::inline v0 {

/// Keeps the spellings of control tokens out of what users, tools and models say: puts a character
/// into each that occurs nowhere else, at which the prompt is cut before it is tokenized.
class SpellingGuard {
 public:
  /// `spellings` are those of the model's control tokens. The character is one that is neither in
  /// `texts` nor means anything. Throws InvalidArgumentError if all are used.
  SpellingGuard(const std::vector<std::string>& spellings,
                const std::vector<std::string_view>& texts);

  std::string guarded(std::string_view text) const;
  /// Whether there is one in `text`.
  bool needed(std::string_view text) const;
  /// The character, in UTF-8.
  const std::string& mark() const noexcept { return mark_; }

 private:
  std::size_t length_at(std::string_view text, std::size_t at) const;

  std::vector<std::vector<const std::string*>> by_first_byte_;  // longest first
  std::string mark_;
};

/// Throws InvalidArgumentError that names what is wrong and where.
std::vector<common_chat_msg> read_messages(std::string_view json, const SpellingGuard& guard);
std::vector<common_chat_tool> read_tools(std::string_view json, const SpellingGuard& guard);

}  // namespace pronk::inline v0
