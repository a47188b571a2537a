// Chats as Python gives and takes them.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "pronk/chat.h"

// The options of chat() as they stand in its signature.
#define PRONK_CHAT_KEYWORDS                                                                   \
  "tools: collections.abc.Sequence[collections.abc.Mapping[str, typing.Any]] | None = None, " \
  "tool_choice: str | collections.abc.Mapping[str, typing.Any] = 'auto', "                    \
  "parallel_tool_calls: bool | None = None, chat_template: str | None = None, "               \
  "template_kwargs: collections.abc.Mapping[str, typing.Any] | None = None"

#define PRONK_FORMAT_KEYWORD \
  "response_format: collections.abc.Mapping[str, typing.Any] | type | None = None"

#define PRONK_FORMAT_ARG                                                                   \
  "    response_format: OpenAI's form: {'type': 'json_object'}, {'type': 'json_schema',\n" \
  "        'json_schema': {'schema': ...}}, or a pydantic model class; the same as json_schema.\n"

#define PRONK_CHAT_ARGS                                                                            \
  "    messages: OpenAI's form: dicts with 'role' ('system', 'user', 'assistant', 'tool') and\n"   \
  "        'content' (text, or a list of {'type': 'text', 'text': ...}); 'tool_calls' of an\n"     \
  "        assistant, 'tool_call_id' of a tool. A completion's message fits in as it is.\n"        \
  "    tools: Functions that the model may call: {'type': 'function', 'function': {'name': ...,\n" \
  "        'description': ..., 'parameters': <JSON schema>}}.\n"                                   \
  "    tool_choice: 'auto', 'none', 'required', or the name of the tool to call.\n"                \
  "    parallel_tool_calls: Whether one answer may have several calls; None leaves it to the\n"    \
  "        template.\n"                                                                            \
  "    chat_template: Jinja text instead of the model's own template.\n"                           \
  "    template_kwargs: More variables for the template, such as {'enable_thinking': False}.\n"

namespace pronk::bindings {

/// A list of dicts as JSON text.
std::string to_messages(nanobind::handle messages);
ChatParams to_chat_params(nanobind::handle tools, nanobind::handle tool_choice,
                          nanobind::handle parallel_tool_calls, nanobind::handle chat_template,
                          nanobind::handle template_kwargs);
/// OpenAI's form, a new dict each time.
nanobind::dict to_dict(const ChatMessage& message);

}  // namespace pronk::bindings
