// An assistant's message as it grows: the text of a generation is parsed again and again, and only
// what is certain is shown.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pronk/chat.h"
#include "pronk/completion.h"

namespace pronk::inline v0 {

/// What a text means so far.
struct ParsedReply {
  ChatMessage message;
  std::size_t n_complete = 0;  ///< leading tool calls that are whole
  bool whole = false;          ///< the text is one message of the format, from its begin to its end
  std::string rest;            ///< text that belongs to no part of the message
};

/// Knows a model's format. Called by one thread at a time.
class ReplyParser {
 public:
  virtual ~ReplyParser() = default;
  /// `ended` says that no more text will come. Must not throw for any text.
  virtual ParsedReply parse(const std::string& text, bool ended) = 0;
};

/// Not thread-safe.
class ReplyStream {
 public:
  /// `names` are those of the tools: a call is shown once its name cannot grow into another.
  ReplyStream(std::unique_ptr<ReplyParser> parser, std::vector<std::string> names);

  /// More of the text. Parses it unless it is the `last`, or parsing takes long and was just done.
  void push(std::string_view text, bool last = false);
  /// All text was pushed, and the generation ended for `reason`; a failed one as cancelled.
  void finish(FinishReason reason);

  std::size_t n_pushed() const noexcept { return text_.size(); }
  bool finished() const noexcept { return finished_; }
  /// Moves on in the content; each of the two hands out all of it once.
  std::string take_content();
  ChatDelta take_delta();

  /// What is certain so far; at the end all of it, without calls that were never finished.
  const ChatMessage& message() const noexcept { return message_; }
  /// Why the generation ended, with regard to what was said. Valid once finished.
  FinishReason reason() const noexcept { return reason_; }

 private:
  struct Shown {
    std::size_t arguments = 0;  // bytes
    bool header = false;        // id and name
  };

  void parse();
  void grow(const ParsedReply& parsed, bool ended);
  bool name_is_certain(const ParsedReply& parsed, std::size_t index) const;

  const std::unique_ptr<ReplyParser> parser_;
  const std::vector<std::string> names_;
  std::string text_;
  std::size_t n_parsed_ = 0;
  std::chrono::steady_clock::time_point parse_again_at_{};
  bool finished_ = false;
  ChatMessage message_;
  FinishReason reason_ = FinishReason::kStop;

  std::size_t content_taken_ = 0;
  std::size_t content_shown_ = 0, reasoning_shown_ = 0;
  std::vector<Shown> calls_shown_;
};

/// Nine random letters and digits: the form that the strictest of the templates asks for.
std::string new_tool_call_id();

}  // namespace pronk::inline v0
