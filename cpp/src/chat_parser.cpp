#include "chat_parser.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "big_stack.h"
#include "chat-peg-parser.h"
#include "pronk/error.h"

namespace pronk::inline v0 {
namespace {

// The parser recurses with the nesting of what the model says, which may be anything. Brackets in
// the text bound that.
constexpr std::size_t kDirectBrackets = 200;
constexpr std::size_t kStackPerBracket = std::size_t{16} << 10;
constexpr std::size_t kBaseStack = std::size_t{4} << 20;
constexpr std::size_t kMaxBrackets = std::size_t{1} << 18;

std::size_t count_brackets(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return c == '[' || c == '{'; }));
}

std::unique_ptr<common_chat_peg_mapper> make_mapper(common_chat_format format,
                                                    common_chat_msg& message) {
  switch (format) {
    case COMMON_CHAT_FORMAT_PEG_GEMMA4:
      return std::make_unique<common_chat_peg_gemma4_mapper>(message);
    case COMMON_CHAT_FORMAT_PEG_MINIMAX_M3:
      return std::make_unique<common_chat_peg_minimax_m3_mapper>(message);
    default:
      return std::make_unique<common_chat_peg_mapper>(message);
  }
}

bool is_object(const std::string& arguments) {
  return common_json::parse_no_throw(arguments).is_object();
}

class PegReplyParser final : public ReplyParser {
 public:
  explicit PegReplyParser(const common_chat_params& params)
      : format_(params.format), generation_prompt_(params.generation_prompt) {
    if (params.parser.empty()) {
      arena_ = build_chat_peg_parser(
          [](common_chat_peg_builder& p) { return p.content(p.rest()) + p.end(); });
      generation_prompt_.clear();
    } else {
      arena_.load(params.parser);
    }
  }

  ParsedReply parse(const std::string& text, bool ended) override {
    ParsedReply reply;
    const std::size_t brackets = count_brackets(text);
    try {
      if (brackets <= kDirectBrackets) {
        reply = parse_text(text, ended);
      } else if (brackets <= kMaxBrackets) {
        run_on_big_stack(kBaseStack + brackets * kStackPerBracket,
                         [&] { reply = parse_text(text, ended); });
      } else {
        reply.rest = text;
      }
    } catch (const std::exception&) {
      // It has no form that the parser knows, or no memory is left to find one.
      reply = {};
      reply.rest = text;
    }
    return reply;
  }

 private:
  ParsedReply parse_text(const std::string& text, bool ended) const {
    if (ended) {
      common_peg_parse_context strict(generation_prompt_ + text);
      if (const auto result = arena_.parse(strict); result.success()) {
        return read(strict, result, true);
      }
    }
    common_peg_parse_context lenient(generation_prompt_ + text, COMMON_PEG_PARSE_FLAG_LENIENT);
    return read(lenient, arena_.parse(lenient), false);
  }

  ParsedReply read(const common_peg_parse_context& context, const common_peg_parse_result& result,
                   bool whole) const {
    ParsedReply reply;
    reply.whole = whole;
    common_chat_msg message;
    make_mapper(format_, message)->from_ast(context.ast, result);
    reply.message.content = std::move(message.content);
    reply.message.reasoning_content = std::move(message.reasoning_content);
    for (common_chat_tool_call& call : message.tool_calls) {
      reply.message.tool_calls.push_back(
          {std::move(call.id), std::move(call.name), std::move(call.arguments)});
    }
    // What follows a call that was cut off is none. Whatever belongs to no part is left over.
    std::size_t n_closed = 0;
    std::size_t open_at = std::string::npos;
    std::size_t covered = generation_prompt_.size();
    context.ast.visit(result, [&](const common_peg_ast_node& node) {
      const bool call = node.tag == common_chat_peg_builder::TOOL;
      if (call && node.is_partial) open_at = std::min(open_at, node.start);
      if (node.start >= open_at) return;
      if (call) ++n_closed;
      if (call || node.tag == common_chat_peg_builder::CONTENT ||
          node.tag == common_chat_peg_builder::REASONING) {
        covered = std::max(covered, node.end);
      }
    });
    const auto& calls = reply.message.tool_calls;
    while (reply.n_complete < std::min(n_closed, calls.size()) &&
           is_object(calls[reply.n_complete].arguments)) {
      ++reply.n_complete;
    }
    if (!whole && (open_at != std::string::npos || result.fail()) &&
        covered < context.input.size()) {
      reply.rest = context.input.substr(covered);
    }
    return reply;
  }

  const common_chat_format format_;
  std::string generation_prompt_;
  common_peg_arena arena_;
};

}  // namespace

std::unique_ptr<ReplyParser> make_reply_parser(const common_chat_params& params) {
  return std::make_unique<PegReplyParser>(params);
}

}  // namespace pronk::inline v0
