// What a generation leaves behind: frozen records.
#include "pronk/completion.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "chat.h"
#include "record.h"

namespace pronk::bindings {
namespace {

const char* name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kToolCalls:
      return "tool_calls";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

void bind_usage(nb::module_& m) {
  nb::class_<Usage> cls(
      m, "Usage",
      "Tokens of one completion.\n\n"
      "Example:\n"
      "    >>> usage = permit.generate('Once upon', max_tokens=8).result().usage\n"
      "    >>> evaluated = usage.prompt_tokens - usage.cached_tokens");
  cls.def_ro("prompt_tokens", &Usage::prompt_tokens, "All tokens of the prompt.")
      .def_ro("cached_tokens", &Usage::cached_tokens,
              "Of these, not evaluated: reused from a known prefix.")
      .def_ro("completion_tokens", &Usage::completion_tokens,
              "Tokens sampled, the end-of-generation token not counted.");
  bind_record(cls, "Usage", {"prompt_tokens", "cached_tokens", "completion_tokens"});
}

void bind_timings(nb::module_& m) {
  nb::class_<Timings> cls(m, "Timings",
                          "How long one completion took, in seconds.\n\n"
                          "Example:\n"
                          "    >>> done = permit.generate('Once upon', max_tokens=8).result()\n"
                          "    >>> per_token = done.timings.decode / len(done.tokens)");
  cls.def_ro("queued", &Timings::queued, "From the call to the first step that worked on it.")
      .def_ro("prefill", &Timings::prefill, "From there to the end of the prompt.")
      .def_ro("first_token", &Timings::first_token, "From the call to the first token.")
      .def_ro("decode", &Timings::decode, "From the first token to the last.");
  bind_record(cls, "Timings", {"queued", "prefill", "first_token", "decode"});
}

void bind_token_logprob(nb::module_& m) {
  nb::class_<TokenLogprob> cls(
      m, "TokenLogprob",
      "How likely a sampled token was.\n\n"
      "Example:\n"
      "    >>> done = permit.generate('Once upon', max_tokens=8, logprobs=2).result()\n"
      "    >>> [math.exp(token.logprob) for token in done.logprobs]");
  cls.def_ro("token", &TokenLogprob::token, "Id of the token.")
      .def_ro("logprob", &TokenLogprob::logprob,
              "Natural logarithm of its probability before sampling, after logit bias.")
      .def_ro("top", &TokenLogprob::top,
              "The likeliest tokens and their log probabilities, best first.");
  bind_record(cls, "TokenLogprob", {"token", "logprob", "top"});
}

}  // namespace

void bind_completion(nb::module_& m) {
  bind_usage(m);
  bind_timings(m);
  bind_token_logprob(m);

  nb::class_<Completion> cls(m, "Completion", nb::is_weak_referenceable(),
                             "What a generation produced.\n\n"
                             "Example:\n"
                             "    >>> done = permit.generate('Once upon', max_tokens=8).result()\n"
                             "    >>> done.finish_reason\n"
                             "    'length'");
  cls.def_ro("text", &Completion::text,
             "The text, up to a stop string if one was met; of a chat, the content of the message.")
      .def_ro("tokens", &Completion::tokens, "Ids of the sampled tokens.")
      .def_prop_ro(
          "finish_reason", [](const Completion& self) { return name_of(self.finish_reason); },
          nb::sig("def finish_reason(self) -> typing.Literal['stop', 'length', 'tool_calls', "
                  "'cancelled']"),
          "'stop' (end of generation or a stop string), 'length' (max_tokens or the context), "
          "'tool_calls' or 'cancelled'.")
      .def_ro("usage", &Completion::usage, "Token counts.")
      .def_ro("timings", &Completion::timings, "Seconds spent.")
      .def_prop_ro(
          "logprobs",
          [](const Completion& self) -> nb::object {
            if (self.logprobs.empty()) return nb::none();
            return nb::cast(self.logprobs);
          },
          nb::sig("def logprobs(self) -> list[TokenLogprob] | None"),
          "One entry per token; None where none were asked for or none was sampled.")
      .def_prop_ro(
          "message",
          [](const Completion& self) -> nb::object {
            if (!self.message) return nb::none();
            return to_dict(*self.message);
          },
          nb::sig("def message(self) -> dict[str, typing.Any] | None"),
          "The answer to a chat in OpenAI's form, a new dict: 'role', 'content', and where there "
          "is "
          "any,\n"
          "'reasoning_content' and 'tool_calls'. None for plain text.")
      .def_prop_ro(
          "parsed",
          [](nb::handle_t<Completion> self) -> nb::object {
            if (!nb::cast<const Completion&>(self).is_json) return nb::none();
            return python("pronk._structured", "parsed")(self);
          },
          nb::sig("def parsed(self) -> typing.Any"),
          "The value of a text that followed a JSON schema, of the pydantic model class where one "
          "was\n"
          "given. None for other texts, and for one that was cut off.\n\n"
          "Raises:\n"
          "    pydantic.ValidationError: The class asks for more than its JSON schema can say.")
      .def("__str__", [](const Completion& self) { return self.text; });
  bind_record(cls, "Completion",
              {"text", "tokens", "finish_reason", "usage", "timings", "logprobs", "message"});
}

}  // namespace pronk::bindings
