// What models say in the formats of several templates, cut at every byte.
#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "chat_parser.h"
#include "chat_render.h"
#include "check.h"
#include "default_template.h"
#include "pronk/testing.h"
#include "reply_stream.h"

namespace {

using pronk::ChatDelta;
using pronk::ChatMessage;
using pronk::ChatParams;
using pronk::FinishReason;
using pronk::RenderedChat;
using pronk::ReplyStream;
using pronk::ToolCall;

constexpr const char* kMessages = R"([{"role": "user", "content": "What is 1 + 2?"}])";
constexpr const char* kTools = R"([
  {"type": "function", "function": {"name": "get", "parameters": {"type": "object",
    "properties": {"key": {"type": "string"}}, "required": ["key"]}}},
  {"type": "function", "function": {"name": "get_all", "parameters": {"type": "object",
    "properties": {"n": {"type": "integer"}, "deep": {"type": "array"}}}}}])";

// A client that puts deltas together.
class Client {
 public:
  void take(const ChatDelta& delta) {
    message_.content += delta.content;
    message_.reasoning_content += delta.reasoning_content;
    for (const auto& piece : delta.tool_calls) {
      const auto index = static_cast<std::size_t>(piece.index);
      if (index == message_.tool_calls.size()) {
        CHECK(!piece.id.empty());
        CHECK(!piece.name.empty());
        message_.tool_calls.push_back({piece.id, piece.name, ""});
      } else {
        CHECK(piece.id.empty());
        CHECK(piece.name.empty());
      }
      if (index < message_.tool_calls.size()) {
        message_.tool_calls[index].arguments += piece.arguments;
      }
    }
  }
  const ChatMessage& message() const { return message_; }

 private:
  ChatMessage message_;
};

RenderedChat render(const std::string& chat_template = {}) {
  static const pronk::testing::ScriptedModel model;
  ChatParams params;
  params.tools = kTools;
  params.chat_template = chat_template;
  params.parallel_tool_calls = true;
  return pronk::render_chat(*model.engine(), kMessages, params);
}

ReplyStream stream_of(const std::string& chat_template = {}) {
  RenderedChat chat = render(chat_template);
  return {std::move(chat.parser), std::move(chat.tool_names)};
}

ChatMessage without_ids(ChatMessage message) {
  for (ToolCall& call : message.tool_calls) call.id.clear();
  return message;
}

bool is_boundary(const std::string& text, std::size_t at) {
  return at >= text.size() || (static_cast<unsigned char>(text[at]) & 0xc0) != 0x80;
}

// Feeds `text` cut at `cuts`, and checks that the deltas join to the message.
ChatMessage feed(const std::string& text, const std::vector<std::size_t>& cuts, FinishReason reason,
                 const std::string& chat_template = {}) {
  ReplyStream stream = stream_of(chat_template);
  Client client;
  std::string content;
  std::size_t begin = 0;
  for (const std::size_t cut : cuts) {
    stream.push(std::string_view(text).substr(begin, cut - begin));
    begin = cut;
    client.take(stream.take_delta());
    content += stream.take_content();
  }
  stream.push(std::string_view(text).substr(begin), true);
  stream.finish(reason);
  client.take(stream.take_delta());
  content += stream.take_content();
  CHECK_EQ(content, stream.message().content);
  const ChatMessage& message = stream.message();
  CHECK_EQ(client.message().content, message.content);
  CHECK_EQ(client.message().reasoning_content, message.reasoning_content);
  CHECK(client.message().tool_calls.size() >= message.tool_calls.size());
  if (client.message().tool_calls.size() < message.tool_calls.size()) return message;
  for (std::size_t i = 0; i < message.tool_calls.size(); ++i) {
    CHECK(client.message().tool_calls[i] == message.tool_calls[i]);
  }
  return message;
}

std::string call(const std::string& name, const std::string& arguments) {
  return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments +
         "}\n</tool_call>";
}

const std::vector<ToolCall>& calls() {
  static const std::vector<ToolCall> all = {
      {"", "get", R"({"key": "é漢🙂 </tool_call> {[\" "})"},
      {"", "get_all", R"({"n": 12, "deep": [[1], {"a": null}]})"},
      {"", "get_all", "{}"},
  };
  return all;
}

std::string text_of(std::size_t n_calls) {
  std::string text;
  for (std::size_t i = 0; i < n_calls; ++i) {
    text += (i > 0 ? "\n" : "") + call(calls()[i].name, calls()[i].arguments);
  }
  return text;
}

}  // namespace

TEST(chat_reply_cut_once_anywhere) {
  for (std::size_t n_calls = 0; n_calls <= 3; ++n_calls) {
    const std::string text = "Well. " + text_of(n_calls);
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      if (!is_boundary(text, cut)) continue;
      const ChatMessage message = without_ids(feed(text, {cut}, FinishReason::kStop));
      CHECK_EQ(message.tool_calls.size(), n_calls);
      CHECK(std::equal(message.tool_calls.begin(), message.tool_calls.end(), calls().begin()));
      CHECK(message.content.starts_with("Well."));
    }
  }
}

TEST(chat_reply_byte_by_byte) {
  const std::string text = "Well.\n" + text_of(3);
  std::vector<std::size_t> cuts;
  for (std::size_t cut = 1; cut < text.size(); ++cut) {
    if (is_boundary(text, cut)) cuts.push_back(cut);
  }
  const ChatMessage message = without_ids(feed(text, cuts, FinishReason::kStop));
  CHECK_EQ(message.tool_calls.size(), 3u);
  CHECK(message.tool_calls == calls());
}

TEST(chat_reply_unfinished_calls_are_left_out) {
  const std::string text = text_of(3);
  for (std::size_t end = 0; end <= text.size(); ++end) {
    if (!is_boundary(text, end)) continue;
    ReplyStream stream = stream_of();
    stream.push(std::string_view(text).substr(0, end), true);
    stream.finish(FinishReason::kLength);
    CHECK(stream.reason() == FinishReason::kLength);
    const ChatMessage message = without_ids(stream.message());
    CHECK(message.tool_calls.size() <= 3);
    CHECK(std::equal(message.tool_calls.begin(), message.tool_calls.end(), calls().begin()));
    CHECK(message.content.find_first_not_of("\n ") == std::string::npos);
  }
}

TEST(chat_reply_broken_call_is_shown_as_text) {
  for (const char* broken :
       {"Hm. <tool_call>\n{\"name\": \"get\", \"arguments\": {\"key\": 1",
        "Hm. <tool_call>\n{\"name\": \"nope\", \"arguments\": {}}\n</tool_call>",
        "Hm. <tool_call> what?"}) {
    const std::string text = broken;
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      const ChatMessage message = feed(text, {cut}, FinishReason::kStop);
      CHECK(message.tool_calls.empty());
      CHECK(message.content.starts_with("Hm."));
      CHECK(message.content.find(text.substr(text.size() - 5)) != std::string::npos);
    }
  }
}

TEST(chat_reply_reasoning_is_kept_apart) {
  const std::string chat_template =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<think>\n"
      "{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}";
  const std::string text = "I add them.\nIt is easy.\n</think>\n\nIt is 3.";
  std::vector<std::size_t> cuts;
  for (std::size_t cut = 1; cut < text.size(); ++cut) {
    cuts.push_back(cut);
    const ChatMessage message = feed(text, {cut}, FinishReason::kStop, chat_template);
    CHECK_EQ(message.content, "It is 3.");
    CHECK_EQ(message.reasoning_content, "I add them.\nIt is easy.");
  }
  const ChatMessage message = feed(text, cuts, FinishReason::kStop, chat_template);
  CHECK_EQ(message.content, "It is 3.");
}

TEST(chat_reply_nested_without_end) {
  for (const std::size_t depth : {100u, 1000u, 100000u, 300000u}) {
    for (const char* bracket : {"[", "{\"a\":", "[{\"a\":["}) {
      std::string text = "<tool_call>\n{\"name\": \"get_all\", \"arguments\": {\"deep\": ";
      for (std::size_t i = 0; i < depth; ++i) text += bracket;
      ReplyStream stream = stream_of();
      stream.push(text);
      stream.finish(FinishReason::kLength);
      CHECK(stream.message().tool_calls.empty());
    }
  }
}

TEST(chat_reply_random_bytes) {
  std::mt19937_64 random(check::seed());
  const std::vector<std::string> parts = {"<tool_call>",
                                          "</tool_call>",
                                          "\n",
                                          "{\"name\": \"get\"",
                                          ", \"arguments\": ",
                                          "{",
                                          "}",
                                          "\"key\"",
                                          ": \"x",
                                          "\"",
                                          "[",
                                          "text ",
                                          "<",
                                          "\\",
                                          "é",
                                          "get_all",
                                          "</think>",
                                          "<think>"};
  for (int round = 0; round < 300; ++round) {
    std::string text;
    std::vector<std::size_t> cuts;
    const std::size_t n = random() % 30;
    for (std::size_t i = 0; i < n; ++i) {
      text += parts[random() % parts.size()];
      if (random() % 2 == 0) cuts.push_back(text.size());
    }
    feed(text, cuts, round % 2 == 0 ? FinishReason::kStop : FinishReason::kLength);
  }
}
