#include "chat_render.h"

#include <algorithm>
#include <set>
#include <utility>

#include "chat_json.h"
#include "chat_messages.h"
#include "chat_parser.h"
#include "chat_schema.h"
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

GrammarSpec grammar_of(const common_chat_params& rendered, const SchemaRules& rules) {
  GrammarSpec spec;
  if (!rendered.grammar.empty()) spec.gbnf = rules.finished(rendered.grammar);
  spec.of_schemas = true;
  spec.lazy = rendered.grammar_lazy;
  if (!spec.lazy) spec.prefix = rendered.generation_prompt;
  for (const common_grammar_trigger& trigger : rendered.grammar_triggers) {
    const bool pattern = trigger.type == COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN ||
                         trigger.type == COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN_FULL;
    if (!trigger.value.empty()) spec.triggers.push_back({trigger.value, pattern});
  }
  return spec;
}

// The schemas of what is asked for, as the conversion to a grammar needs them. The prompt has them
// as they were given.
common_chat_templates_inputs for_grammar(const common_chat_templates_inputs& inputs,
                                         SchemaRules& rules) {
  common_chat_templates_inputs result = inputs;
  if (!inputs.json_schema.empty()) {
    result.json_schema = schema_for_grammar(parse_schema(inputs.json_schema), "json_schema",
                                            SchemaFor::kAnswer, rules)
                             .dump();
  }
  if (inputs.tool_choice == COMMON_CHAT_TOOL_CHOICE_NONE) return result;
  for (std::size_t i = 0; i < result.tools.size(); ++i) {
    std::string& parameters = result.tools[i].parameters;
    parameters = schema_for_grammar(common_json::parse(parameters),
                                    "tools[" + std::to_string(i) + "].function.parameters",
                                    SchemaFor::kTool, rules)
                     .dump();
  }
  return result;
}

// What becomes the prompt, without the work for a grammar.
common_chat_params render_prompt(const ChatTemplate& chat_template,
                                 const common_chat_templates_inputs& inputs,
                                 const std::string& rewritten_schema) {
  common_chat_templates_inputs only_prompt = inputs;
  only_prompt.tool_choice = COMMON_CHAT_TOOL_CHOICE_NONE;
  if (inputs.json_schema.empty()) return chat_template.apply(only_prompt);
  try {
    return chat_template.apply(only_prompt);
  } catch (const InvalidArgumentError&) {
    // Few templates show the schema. One that llama.cpp cannot read is shown as rewritten.
    only_prompt.json_schema = rewritten_schema;
    return chat_template.apply(only_prompt);
  }
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
    inputs.json_schema = parse_schema(json_schema).dump();
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
  std::vector<std::string_view> schemas = {inputs.json_schema};
  for (const common_chat_tool& tool : inputs.tools) schemas.push_back(tool.parameters);
  SchemaRules rules(schemas);
  common_chat_templates_inputs asked = for_grammar(inputs, rules);
  const bool same = inputs.json_schema.empty() &&
                    (inputs.tools.empty() || inputs.tool_choice == COMMON_CHAT_TOOL_CHOICE_NONE);
  common_chat_params rendered = same ? chat_template->apply(inputs)
                                     : render_prompt(*chat_template, inputs, asked.json_schema);
  tokenize_prompt(engine, rendered.prompt, guard.mark(), templates->bos(), chat);
  // All tools stay in the prompt, as its other readers share it; the answer may be for one.
  if (!params.tool_name.empty()) {
    std::erase_if(asked.tools, [&](const auto& tool) { return tool.name != params.tool_name; });
  }
  if (!same) rendered = chat_template->apply(asked);
  without(rendered.generation_prompt, guard.mark());
  chat.parser = make_reply_parser(rendered);
  chat.stops = rendered.additional_stops;
  chat.grammar = grammar_of(rendered, rules);
  if (inputs.tool_choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED && !rendered.supports_thinking) {
    // That grammar lets a model talk for as long as it likes before the call. The one for calls
    // that nobody asked for begins with the call.
    asked.tool_choice = COMMON_CHAT_TOOL_CHOICE_AUTO;
    GrammarSpec calls = grammar_of(chat_template->apply(asked), rules);
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
