#include "chat_render.h"

#include <algorithm>
#include <set>
#include <utility>

#include "chat_json.h"
#include "chat_messages.h"
#include "chat_parser.h"
#include "chat_template.h"
#include "inner_tokens.h"
#include "pronk/error.h"

namespace pronk::inline v0 {
namespace {

constexpr std::size_t kMaxKwargsBytes = std::size_t{1} << 20;

common_chat_tool_choice read_choice(const ChatParams& params,
                                    const std::vector<common_chat_tool>& tools) {
  if (!params.tool_name.empty()) {
    if (std::none_of(tools.begin(), tools.end(),
                     [&](const auto& tool) { return tool.name == params.tool_name; })) {
      throw InvalidArgumentError("tool_choice: got '" + params.tool_name +
                                 "', expected 'auto', 'none', 'required' or the name of a tool, "
                                 "pass the tool too");
    }
    return COMMON_CHAT_TOOL_CHOICE_REQUIRED;
  }
  if (params.tool_choice == "auto") return COMMON_CHAT_TOOL_CHOICE_AUTO;
  if (params.tool_choice == "none") return COMMON_CHAT_TOOL_CHOICE_NONE;
  if (params.tool_choice != "required") {
    throw InvalidArgumentError("tool_choice: got '" + params.tool_choice +
                               "', expected 'auto', 'none', 'required' or the name of a tool, "
                               "choose one of them");
  }
  if (tools.empty()) {
    throw InvalidArgumentError(
        "tool_choice: got 'required' without tools, expected at least one tool, pass tools");
  }
  return COMMON_CHAT_TOOL_CHOICE_REQUIRED;
}

void read_kwargs(const ChatParams& params, common_chat_templates_inputs& inputs) {
  if (params.template_kwargs.empty()) return;
  const common_json json = parse_json("template_kwargs", params.template_kwargs, kMaxKwargsBytes);
  if (!json.is_object()) {
    throw InvalidArgumentError(std::string("template_kwargs: got ") + json_type(json) +
                               ", expected an object, pass a dict");
  }
  for (const auto& [key, value] : json.items()) {
    inputs.chat_template_kwargs[key] = value.dump();
    if (key == "enable_thinking" && value.is_boolean()) inputs.enable_thinking = value.get<bool>();
  }
}

// Control tokens are read out of each part between two marks, so that none of them comes of what
// was marked.
void tokenize_prompt(const InferenceEngine& engine, const std::string& marked,
                     const std::string& mark, const std::string& bos, RenderedChat& chat) {
  const bool has_bos = !bos.empty() && marked.starts_with(bos);
  std::size_t begin = 0;
  while (begin <= marked.size()) {
    const std::size_t end = std::min(marked.find(mark, begin), marked.size());
    const std::string part = marked.substr(begin, end - begin);
    const std::vector<Token> tokens =
        begin == 0 ? engine.tokenize(part, !has_bos, true) : tokenize_inner(engine, part, true);
    chat.prompt.insert(chat.prompt.end(), tokens.begin(), tokens.end());
    chat.text += part;
    begin = end + mark.size();
  }
}

GrammarSpec grammar_of(const common_chat_params& rendered) {
  GrammarSpec spec;
  spec.gbnf = rendered.grammar;
  spec.lazy = rendered.grammar_lazy;
  if (!spec.lazy) spec.prefix = rendered.generation_prompt;
  for (const common_grammar_trigger& trigger : rendered.grammar_triggers) {
    const bool pattern = trigger.type == COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN ||
                         trigger.type == COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN_FULL;
    if (!trigger.value.empty()) spec.triggers.push_back({trigger.value, pattern});
  }
  return spec;
}

void without(std::string& text, const std::string& mark) {
  for (std::size_t at; (at = text.find(mark)) != std::string::npos;) text.erase(at, mark.size());
}

}  // namespace

RenderedChat render_chat(const InferenceEngine& engine, std::string_view messages,
                         const ChatParams& params, const std::string& json_schema) {
  const std::shared_ptr<ChatTemplates> templates = chat_templates(engine);
  const SpellingGuard guard(templates->spellings(),
                            {messages, params.tools, params.chat_template, params.template_kwargs});
  common_chat_templates_inputs inputs;
  inputs.messages = read_messages(messages, guard);
  inputs.tools = read_tools(params.tools, guard);
  inputs.tool_choice = read_choice(params, inputs.tools);
  inputs.reasoning_format = COMMON_REASONING_FORMAT_DEEPSEEK;
  read_kwargs(params, inputs);
  if (!json_schema.empty()) {
    grammar_of_schema(json_schema);  // says what is wrong with it
    inputs.json_schema = json_schema;
    if (!inputs.tools.empty() && inputs.tool_choice != COMMON_CHAT_TOOL_CHOICE_NONE) {
      throw InvalidArgumentError(
          "json_schema: got one for an answer that may call tools, expected one of the two, pass "
          "tool_choice='none' or no schema");
    }
  }

  RenderedChat chat;
  for (const common_chat_tool& tool : inputs.tools) chat.tool_names.push_back(tool.name);
  const auto chat_template = templates->get(params.chat_template, !inputs.tools.empty());
  inputs.parallel_tool_calls =
      params.parallel_tool_calls.value_or(chat_template->supports("supports_parallel_tool_calls"));
  common_chat_params rendered = chat_template->apply(inputs);
  tokenize_prompt(engine, rendered.prompt, guard.mark(), templates->bos(), chat);
  if (!params.tool_name.empty()) {
    // All tools stay in the prompt, as its other readers share it; the answer is for one.
    std::erase_if(inputs.tools, [&](const auto& tool) { return tool.name != params.tool_name; });
    rendered = chat_template->apply(inputs);
  }
  without(rendered.generation_prompt, guard.mark());
  chat.parser = make_reply_parser(rendered);
  chat.stops = rendered.additional_stops;
  chat.grammar = grammar_of(rendered);
  if (inputs.tool_choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED && !rendered.supports_thinking) {
    // That grammar lets a model talk for as long as it likes before the call. The one for calls
    // that nobody asked for begins with the call.
    inputs.tool_choice = COMMON_CHAT_TOOL_CHOICE_AUTO;
    GrammarSpec calls = grammar_of(chat_template->apply(inputs));
    inputs.tool_choice = COMMON_CHAT_TOOL_CHOICE_REQUIRED;
    if (calls.lazy && !calls.gbnf.empty()) {
      calls.lazy = false;
      chat.grammar = std::move(calls);
    }
  }
  if (inputs.tool_choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED && chat.grammar.gbnf.empty()) {
    throw InvalidArgumentError(
        "tool_choice: got one that needs a call, expected 'auto' or 'none' for this template, "
        "whose "
        "format of calls is not known, pass another chat_template");
  }
  std::set<Token> shown;
  for (const std::string& spelling : rendered.preserved_tokens) {
    const std::vector<Token> tokens = engine.tokenize(spelling, false, true);
    if (tokens.size() == 1) shown.insert(tokens[0]);
  }
  chat.shown.assign(shown.begin(), shown.end());
  return chat;
}

}  // namespace pronk::inline v0
