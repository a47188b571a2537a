#include "reply_stream.h"

#include <algorithm>
#include <random>
#include <utility>

namespace pronk::inline v0 {
namespace {

// A parse reads the whole text again. It takes at most this share of the consumer's time.
constexpr int kParseShare = 10;

std::string_view without_trailing_space(std::string_view text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\n' || text.back() == '\t' ||
                           text.back() == '\r')) {
    text.remove_suffix(1);
  }
  return text;
}

// Lets `text` grow to `now`, of which it must be the beginning: what was shown stays.
void extend(std::string& text, std::string_view now) {
  if (now.size() > text.size() && now.starts_with(text)) text.append(now.substr(text.size()));
}

}  // namespace

std::string new_tool_call_id() {
  static constexpr std::string_view kAlphabet =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  thread_local std::mt19937_64 random(std::random_device{}());
  std::string id;
  for (int i = 0; i < 9; ++i) id += kAlphabet[random() % kAlphabet.size()];
  return id;
}

ReplyStream::ReplyStream(std::unique_ptr<ReplyParser> parser, std::vector<std::string> names)
    : parser_(std::move(parser)), names_(std::move(names)) {}

void ReplyStream::push(std::string_view text, bool last) {
  text_.append(text);
  if (last || n_parsed_ == text_.size() || std::chrono::steady_clock::now() < parse_again_at_) {
    return;
  }
  parse();
}

void ReplyStream::parse() {
  const auto begin = std::chrono::steady_clock::now();
  n_parsed_ = text_.size();
  grow(parser_->parse(text_, false), false);
  const auto end = std::chrono::steady_clock::now();
  parse_again_at_ = end + (end - begin) * (kParseShare - 1);
}

void ReplyStream::finish(FinishReason reason) {
  if (finished_) return;
  finished_ = true;
  const bool stopped = reason == FinishReason::kStop;
  ParsedReply parsed = parser_->parse(text_, true);
  // The model ended of its own will in the middle of something, or said what its format does not
  // know: better shown as it is than lost.
  if (stopped && !parsed.whole) {
    std::string& content = parsed.message.content;
    content += parsed.rest;
    if (!content.starts_with(message_.content)) content = message_.content + parsed.rest;
  }
  grow(parsed, true);
  const std::size_t n_complete = std::min(parsed.n_complete, message_.tool_calls.size());
  message_.tool_calls.resize(n_complete);
  reason_ = reason;
  // Cut off, it is not known what else the model wanted.
  if (stopped && n_complete > 0) reason_ = FinishReason::kToolCalls;
}

bool ReplyStream::name_is_certain(const ParsedReply& parsed, std::size_t index) const {
  if (index < parsed.n_complete || index + 1 < parsed.message.tool_calls.size()) return true;
  const ToolCall& call = parsed.message.tool_calls[index];
  if (call.arguments.size() < 2) return false;  // "{" says no more than that there is a name
  bool known = false;
  for (const std::string& name : names_) {
    if (name == call.name) {
      known = true;
    } else if (name.starts_with(call.name)) {
      return false;
    }
  }
  return known;
}

// Takes over what is certain. Space at the end of a running text may yet turn out to belong to what
// follows it.
void ReplyStream::grow(const ParsedReply& parsed, bool ended) {
  const ChatMessage& now = parsed.message;
  const auto certain = [ended](const std::string& text) {
    return ended ? std::string_view(text) : without_trailing_space(text);
  };
  extend(message_.reasoning_content, without_trailing_space(now.reasoning_content));
  extend(message_.content, certain(now.content));
  for (std::size_t i = 0; i < now.tool_calls.size(); ++i) {
    if (i == message_.tool_calls.size()) {
      if (ended ? i >= parsed.n_complete : !name_is_certain(parsed, i)) break;
      const ToolCall& call = now.tool_calls[i];
      message_.tool_calls.push_back(
          {call.id.empty() ? new_tool_call_id() : call.id, call.name, ""});
    }
    extend(message_.tool_calls[i].arguments, now.tool_calls[i].arguments);
  }
}

std::string ReplyStream::take_content() {
  std::string piece = message_.content.substr(content_taken_);
  content_taken_ = message_.content.size();
  return piece;
}

ChatDelta ReplyStream::take_delta() {
  ChatDelta delta;
  delta.reasoning_content = message_.reasoning_content.substr(reasoning_shown_);
  reasoning_shown_ = message_.reasoning_content.size();
  delta.content = message_.content.substr(content_shown_);
  content_shown_ = message_.content.size();
  const std::size_t n = message_.tool_calls.size();
  if (calls_shown_.size() < n) calls_shown_.resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    const ToolCall& call = message_.tool_calls[i];
    Shown& shown = calls_shown_[i];
    if (shown.header && shown.arguments == call.arguments.size()) continue;
    ToolCallDelta piece;
    piece.index = static_cast<std::int32_t>(i);
    if (!shown.header) {
      piece.id = call.id;
      piece.name = call.name;
    }
    piece.arguments = call.arguments.substr(shown.arguments);
    shown = {call.arguments.size(), true};
    delta.tool_calls.push_back(std::move(piece));
  }
  return delta;
}

}  // namespace pronk::inline v0
