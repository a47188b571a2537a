// The right to run one inference.
#include "pronk/permit.h"

#include <nanobind/nanobind.h>

#include <optional>
#include <variant>

#include "bindings.h"
#include "chat.h"
#include "convert.h"
#include "gil.h"
#include "params.h"
#include "prompt.h"
#include "pronk/error.h"
#include "ready.h"
#include "release.h"
#include "signals.h"
#include "structured.h"

namespace pronk::bindings {
namespace {

Generation start(InferencePermit& self, nb::handle prompt, const GenerationParams& params) {
  Prompt converted = to_prompt(prompt);
  DetachGil detached;
  self.create_pool(look_up_signals(detached));
  return std::visit([&](auto&& value) { return self.generate(std::move(value), params); },
                    std::move(converted));
}

nb::object generate(InferencePermit& self, nb::handle prompt, const nb::kwargs& keywords) {
  return with_schema(start(self, prompt, to_generation_params(keywords)), keywords);
}

nb::object chat(InferencePermit& self, nb::handle messages, nb::handle tools,
                nb::handle tool_choice, nb::handle parallel_tool_calls, nb::handle chat_template,
                nb::handle template_kwargs, nb::handle response_format,
                const nb::kwargs& keywords) {
  const nb::kwargs all = with_response_format(keywords, response_format);
  const GenerationParams params = to_generation_params(all, "chat");
  const ChatParams chat_params =
      to_chat_params(tools, tool_choice, parallel_tool_calls, chat_template, template_kwargs);
  const std::string json = to_messages(messages);
  std::optional<Generation> generation;
  {
    DetachGil detached;
    self.create_pool(look_up_signals(detached));
    generation = self.chat(json, chat_params, params);
  }
  return with_schema(*std::move(generation), all);
}

nb::object enter(nb::handle_t<InferencePermit> self) {
  if (nb::cast<InferencePermit&>(self).released()) {
    throw PermitReleasedError(
        "permit: got a with statement after release(), expected a held permit, acquire a new one");
  }
  return nb::borrow(self);
}

constexpr const char* kDoc =
    "The right to run one inference at a time, until it is released.\n\n"
    "Use it in a with statement, sync or async; dropping it releases it too. It covers one model "
    "call,\n"
    "never a tool call or a human's answer: give it back in between, what it computed stays "
    "cached.\n"
    "Methods may be called from any thread or task.\n\n"
    "Example:\n"
    "    >>> with scheduler.acquire() as permit:\n"
    "    ...     print(permit.generate('Once upon', max_tokens=8).result().text)";

}  // namespace

void bind_permit(nb::module_& m) {
  nb::class_<InferencePermit>(m, "InferencePermit", nb::pooled(), kDoc)
      .def("generate", &generate, unchecked("prompt"), nb::arg("params"),
           nb::sig("def generate(self, prompt: str | collections.abc.Sequence[int], "
                   "*, " PRONK_GENERATE_KEYWORDS ") -> Generation"),
           "Start a completion of ``prompt`` and return at once.\n\n"
           "Args:\n" PRONK_GENERATE_ARGS
           "\n"
           "Raises:\n"
           "    pronk.PermitReleasedError: The permit was given back.\n"
           "    pronk.PermitBusyError: It runs another generation.\n"
           "    pronk.PoolNotInitialisedError: The scheduler has no engine.\n"
           "    pronk.ContextOverflowError: The prompt does not fit into the context.\n"
           "    pronk.InvalidArgumentError: A value is out of range.")
      .def("chat", &chat, unchecked("messages"), nb::kw_only(), unchecked("tools") = nb::none(),
           unchecked("tool_choice") = "auto", unchecked("parallel_tool_calls") = nb::none(),
           unchecked("chat_template") = nb::none(), unchecked("template_kwargs") = nb::none(),
           unchecked("response_format") = nb::none(), nb::arg("params"),
           nb::sig("def chat(self, messages: "
                   "collections.abc.Sequence[collections.abc.Mapping[str, typing.Any]], "
                   "*, " PRONK_CHAT_KEYWORDS ", " PRONK_FORMAT_KEYWORD ", " PRONK_GENERATE_KEYWORDS
                   ") -> Generation"),
           "Start the answer to a chat and return at once.\n\n"
           "The model's template makes the prompt of the messages; the answer is read in the "
           "model's\n"
           "format: see the completion's message, and deltas() for the stream.\n\n"
           "Args:\n" PRONK_CHAT_ARGS PRONK_FORMAT_ARG PRONK_SAMPLING_ARGS
           "\n"
           "Raises:\n"
           "    pronk.InvalidArgumentError: A message or tool is not as it should be, or the "
           "template\n"
           "        refuses them.\n"
           "    pronk.ContextOverflowError: The prompt does not fit into the context.\n"
           "    pronk.PermitReleasedError, pronk.PermitBusyError, pronk.PoolNotInitialisedError: "
           "As\n"
           "        generate() does.\n\n"
           "Example:\n"
           "    >>> done = permit.chat([{'role': 'user', 'content': 'Hi'}], "
           "max_tokens=64).result()\n"
           "    >>> done.message\n"
           "    {'role': 'assistant', 'content': 'Hello! How can I help you today?'}")
      .def("release", &release,
           "Give the permit back: cancel what runs in it and hand it to the next in line. Never "
           "blocks,\n"
           "may be called twice and from any thread or task.")
      .def("detach", &InferencePermit::detach,
           "Say that another thread or task will release the permit.\n\n"
           "Who acquired it may then wait for the next one without a DeadlockError.\n\n"
           "Example:\n"
           "    >>> permit = scheduler.acquire()\n"
           "    >>> permit.detach()\n"
           "    >>> work.put(permit)")
      .def_prop_ro("released", &InferencePermit::released, "Whether the permit was given back.")
      .def("__enter__", &enter, nb::sig("def __enter__(self) -> InferencePermit"))
      .def(
          "__exit__",
          [](InferencePermit& self, nb::handle, nb::handle, nb::handle) { release(self); },
          unchecked("kind"), unchecked("error"), unchecked("traceback"),
          nb::sig("def __exit__(self, kind: object, error: object, traceback: object, /) -> None"))
      .def(
          "__aenter__", [](nb::handle_t<InferencePermit> self) { return ready(enter(self)); },
          nb::sig("def __aenter__(self) -> collections.abc.Awaitable[InferencePermit]"))
      .def(
          "__aexit__",
          [](InferencePermit& self, nb::handle, nb::handle, nb::handle) {
            release(self);
            return ready_none();
          },
          unchecked("kind"), unchecked("error"), unchecked("traceback"),
          nb::sig("def __aexit__(self, kind: object, error: object, traceback: object, /) -> "
                  "collections.abc.Awaitable[None]"))
      .def("__repr__", [](const InferencePermit& self) {
        return self.released() ? "<pronk.InferencePermit released>"
                               : "<pronk.InferencePermit held>";
      });
}

}  // namespace pronk::bindings
