#include "chat.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "convert.h"
#include "record.h"

namespace pronk::bindings {
namespace {

std::string to_json(const char* name, nb::handle value) {
  const nb::object json = python("pronk._chat", "to_json")(name, value);
  return std::string(
      to_string_view(json, {name, "encode with errors='replace' and decode it again"}));
}

void set_tool_choice(ChatParams& params, nb::handle value) {
  const Argument argument{"tool_choice", "pass 'auto', 'none', 'required' or the name of a tool"};
  if (value.is_none()) return;
  nb::object choice = nb::borrow(value);
  if (!PyUnicode_Check(value.ptr())) {
    if (!PyMapping_Check(value.ptr())) throw_invalid_type(argument, value, "a str or a dict");
    choice = python("pronk._chat", "tool_name")(value);
    params.tool_name = to_string_view(choice, argument);
    return;
  }
  const std::string_view name = to_string_view(choice, argument);
  if (name == "auto" || name == "none" || name == "required") {
    params.tool_choice = name;
  } else if (name.empty()) {
    throw_invalid_value(argument, value, "'auto', 'none', 'required' or the name of a tool");
  } else {
    params.tool_name = name;
  }
}

}  // namespace

std::string to_messages(nb::handle messages) {
  if (PyUnicode_Check(messages.ptr()) || PyMapping_Check(messages.ptr()) == 0 ||
      PyDict_Check(messages.ptr())) {
    throw_invalid_type({"messages", "pass [{'role': 'user', 'content': ...}]"}, messages,
                       "a list of dicts");
  }
  return to_json("messages", messages);
}

ChatParams to_chat_params(nb::handle tools, nb::handle tool_choice, nb::handle parallel_tool_calls,
                          nb::handle chat_template, nb::handle template_kwargs) {
  ChatParams params;
  if (!tools.is_none()) {
    if (PyUnicode_Check(tools.ptr()) || PyDict_Check(tools.ptr())) {
      throw_invalid_type({"tools", "pass a list of function tools"}, tools, "a list of dicts");
    }
    params.tools = to_json("tools", tools);
  }
  set_tool_choice(params, tool_choice);
  if (!parallel_tool_calls.is_none()) {
    params.parallel_tool_calls =
        to_bool(parallel_tool_calls,
                {"parallel_tool_calls", "pass True, False, or None for the template's"});
  }
  if (!chat_template.is_none()) {
    const Argument argument{"chat_template", "pass Jinja text, or None for the model's own"};
    params.chat_template = to_string_view(chat_template, argument);
    if (params.chat_template.empty()) throw_invalid_value(argument, chat_template, "some text");
  }
  if (!template_kwargs.is_none())
    params.template_kwargs = to_json("template_kwargs", template_kwargs);
  return params;
}

nb::dict to_dict(const ChatMessage& message) {
  nb::dict result;
  result["role"] = "assistant";
  result["content"] = message.content;
  if (!message.reasoning_content.empty()) result["reasoning_content"] = message.reasoning_content;
  if (message.tool_calls.empty()) return result;
  nb::list calls;
  for (const ToolCall& call : message.tool_calls) {
    nb::dict function;
    function["name"] = call.name;
    function["arguments"] = call.arguments;
    nb::dict entry;
    entry["id"] = call.id;
    entry["type"] = "function";
    entry["function"] = function;
    calls.append(entry);
  }
  result["tool_calls"] = calls;
  return result;
}

void bind_chat(nb::module_& m) {
  nb::class_<ToolCallDelta> call(m, "ToolCallDelta",
                                 "What came to one tool call of an answer.\n\n"
                                 "Example:\n"
                                 "    >>> for call in delta.tool_calls:\n"
                                 "    ...     arguments[call.index] += call.arguments");
  call.def_ro("index", &ToolCallDelta::index, "Which call of the message, from 0.")
      .def_ro("id", &ToolCallDelta::id,
              "Id of the call, whole, with its first delta; empty afterwards.")
      .def_ro("name", &ToolCallDelta::name,
              "Name of the function, whole, with the first delta; empty afterwards.")
      .def_ro("arguments", &ToolCallDelta::arguments,
              "What came to the arguments: a piece of JSON.");
  bind_record(call, "ToolCallDelta", {"index", "id", "name", "arguments"});

  nb::class_<ChatDelta> delta(
      m, "ChatDelta",
      "What came to an answer: text, reasoning, tool calls; at least one of them is not empty.\n\n"
      "Deltas only ever add. Joined in order they are the message, and besides at most the "
      "beginning of\n"
      "a call that was never finished, which the message leaves out.\n\n"
      "Example:\n"
      "    >>> text = ''.join(delta.content for delta in permit.chat(messages).deltas())");
  delta.def_ro("content", &ChatDelta::content, "What came to the text.")
      .def_ro("reasoning_content", &ChatDelta::reasoning_content,
              "What came to the thoughts that the model's format keeps apart.")
      .def_ro("tool_calls", &ChatDelta::tool_calls, "What came to tool calls.");
  bind_record(delta, "ChatDelta", {"content", "reasoning_content", "tool_calls"});
}

}  // namespace pronk::bindings
