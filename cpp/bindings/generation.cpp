// One running completion, for every style of waiting.
#include "pronk/generation.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <utility>

#include "bindings.h"
#include "convert.h"
#include "errors.h"
#include "gil.h"
#include "mailbox.h"
#include "ready.h"
#include "signals.h"
#include "structured.h"

namespace pronk::bindings {
namespace {

// What a chat says is read on this thread, which takes time.
class DetachGilIf {
 public:
  explicit DetachGilIf(bool detach) {
    if (detach) detached_.emplace();
  }

 private:
  std::optional<DetachGil> detached_;
};

StreamStatus look(Generation& self, std::string& text, Nanoseconds at_most, Nanoseconds slice) {
  return self.next_for(text, at_most, slice);
}
StreamStatus look(Generation& self, ChatDelta& delta, Nanoseconds at_most, Nanoseconds slice) {
  return self.next_delta_for(delta, at_most, slice);
}

// Looks for more, and waits for it if `wait`.
template <class Part>
StreamStatus next_part(Generation& self, Part& part, bool wait) {
  try {
    StreamStatus status;
    {
      const DetachGilIf detached(self.is_chat());
      status = look(self, part, Nanoseconds(0), Nanoseconds::max());
    }
    if (status != StreamStatus::kTimeout || !wait) return status;
    wait_with_signals(
        std::nullopt, [&] { return self.age(); },
        [&](Nanoseconds at_most, Nanoseconds slice) {
          status = look(self, part, at_most, slice);
          return status != StreamStatus::kTimeout;
        });
    return status;
  } catch (const GenerationCancelled& error) {
    raise_cancelled(error, nb::cast(self.result()));
  }
}

template <class Part>
Part next_of(Generation& self) {
  Part part;
  if (next_part(self, part, true) == StreamStatus::kEnd) throw nb::stop_iteration();
  return part;
}

template <class Part>
nb::object next_of_async(nb::handle_t<Generation> self, const char* wait) {
  Part part;
  switch (next_part(nb::cast<Generation&>(self), part, false)) {
    case StreamStatus::kPiece:
      return ready(nb::cast(std::move(part)));
    case StreamStatus::kEnd:
      return ready_end();
    case StreamStatus::kTimeout:
      break;
  }
  return python("pronk._async", wait)(self);
}

/// The other way to iterate a chat's generation.
struct Deltas {
  nb::object generation;
};

Deltas deltas(nb::handle_t<Generation> self) {
  if (!nb::cast<Generation&>(self).is_chat()) {
    throw InvalidArgumentError(
        "deltas: got a generation of plain text, expected one of a chat, iterate it instead");
  }
  return {nb::borrow(self)};
}

Completion read_result(const Generation& self) {
  const DetachGilIf detached(self.is_chat());
  return self.result();
}

nb::object result(nb::handle_t<Generation> handle, nb::handle timeout) {
  auto& self = nb::cast<Generation&>(handle);
  const auto limit = to_timeout(timeout, {"timeout", "pass None to wait for ever"});
  if (!self.done() &&
      !wait_with_signals(
          limit, [&] { return self.age(); },
          [&](Nanoseconds at_most, Nanoseconds slice) { return self.wait_for(at_most, slice); })) {
    throw ResultTimeout("result: got no end of the generation within " + repr_of(timeout) +
                        " s, expected it to finish in time, wait longer or cancel() it");
  }
  return with_schema_of(handle, read_result(self));
}

nb::object await(nb::handle_t<Generation> self) {
  const Generation& generation = nb::cast<Generation&>(self);
  if (generation.done()) return ready(with_schema_of(self, read_result(generation)));
  return python("pronk._async", "wait_for_result")(self).attr("__await__")();
}

template <class Part>
std::optional<Part> take(Generation& self) {
  Part part;
  switch (next_part(self, part, false)) {
    case StreamStatus::kPiece:
      return part;
    case StreamStatus::kTimeout:
      return std::nullopt;
    case StreamStatus::kEnd:
      break;
  }
  PyErr_SetNone(PyExc_StopAsyncIteration);
  throw nb::python_error();
}

std::string text(const Generation& self) {
  const DetachGilIf detached(self.is_chat());
  return self.text();
}

constexpr const char* kDoc =
    "One running completion: iterate it, await it, ask for its result, cancel it.\n\n"
    "Iteration gives pieces of text as they are generated: whole UTF-8, never a part of a stop "
    "string.\n"
    "Each piece is handed out once. Dropping an unfinished generation cancels it. All methods may "
    "be\n"
    "called from any thread; one event loop at a time may wait for it. The iteration of a "
    "cancelled\n"
    "generation ends in GenerationCancelled, its result() is what it had.\n\n"
    "Example:\n"
    "    >>> for piece in permit.generate('Once upon', max_tokens=64):\n"
    "    ...     print(piece, end='')";

}  // namespace

void bind_generation(nb::module_& m) {
  nb::class_<Generation>(m, "Generation", nb::is_weak_referenceable(), kDoc)
      .def(
          "__iter__", [](nb::handle_t<Generation> self) { return nb::borrow(self); },
          nb::sig("def __iter__(self) -> Generation"))
      .def("__next__", &next_of<std::string>)
      .def(
          "__aiter__", [](nb::handle_t<Generation> self) { return nb::borrow(self); },
          nb::sig("def __aiter__(self) -> Generation"))
      .def(
          "__anext__",
          [](nb::handle_t<Generation> self) {
            return next_of_async<std::string>(self, "next_piece");
          },
          nb::sig("def __anext__(self) -> collections.abc.Awaitable[str]"))
      .def("__await__", &await,
           nb::sig("def __await__(self) -> collections.abc.Generator[typing.Any, typing.Any, "
                   "Completion]"))
      .def("result", &result, unchecked("timeout") = nb::none(),
           nb::sig("def result(self, timeout: float | None = None) -> Completion"),
           "Wait for the end and return the completion.\n\n"
           "A cancelled generation returns what it had, with finish_reason 'cancelled'.\n\n"
           "Args:\n"
           "    timeout: Seconds to wait at most; None waits for ever.\n\n"
           "Raises:\n"
           "    pronk.ResultTimeout: It has not ended in time. It goes on.\n"
           "    pronk.Error: What ended the generation, if it failed.")
      .def("deltas", &deltas, nb::sig("def deltas(self) -> Deltas"),
           "Iterate the answer to a chat as deltas of content, reasoning and tool calls.\n\n"
           "Sync or async; each delta is handed out once. What was sent is never taken back.\n\n"
           "Raises:\n"
           "    pronk.InvalidArgumentError: It is no chat.\n\n"
           "Example:\n"
           "    >>> for delta in permit.chat(messages, tools=tools).deltas():\n"
           "    ...     print(delta.content, end='')")
      .def("cancel", &Generation::cancel,
           "End the generation within one decode step. Never blocks, may be called twice.")
      .def_prop_ro("done", &Generation::done, "True once the generation has ended, whatever way.")
      .def_prop_ro("text", &text,
                   "All text so far, taken or not; of a chat, the message's content.")
      .def("__repr__", [](const Generation& self) {
        return std::string("<pronk.Generation ") + (self.done() ? "done" : "running") + ", " +
               std::to_string(text(self).size()) + " bytes>";
      });

  nb::class_<Deltas>(m, "Deltas",
                     "The answer to a chat as a stream of ChatDelta, for `for` and `async for`.\n\n"
                     "Example:\n"
                     "    >>> for delta in permit.chat(messages).deltas():\n"
                     "    ...     print(delta.content, end='')")
      .def(
          "__iter__", [](nb::handle_t<Deltas> self) { return nb::borrow(self); },
          nb::sig("def __iter__(self) -> Deltas"))
      .def("__next__",
           [](const Deltas& self) {
             return next_of<ChatDelta>(nb::cast<Generation&>(self.generation));
           })
      .def(
          "__aiter__", [](nb::handle_t<Deltas> self) { return nb::borrow(self); },
          nb::sig("def __aiter__(self) -> Deltas"))
      .def(
          "__anext__",
          [](const Deltas& self) {
            return next_of_async<ChatDelta>(nb::handle_t<Generation>(self.generation),
                                            "next_delta");
          },
          nb::sig("def __anext__(self) -> collections.abc.Awaitable[ChatDelta]"));

  // For pronk._async; not methods, so that they are not part of the public class.
  m.def(
      "listen",
      [](Generation& generation, const MailboxHandle& mailbox, std::uint64_t key) {
        generation.listen({mailbox.mailbox, key});
      },
      nb::arg("generation"), nb::arg("mailbox"), nb::arg("key"),
      "Post the key to the mailbox whenever text arrives and at the end.");
  m.def("take_delta", &take<ChatDelta>, nb::arg("generation"),
        "The same as take() for the deltas of a chat.");
  m.def("take", &take<std::string>, nb::arg("generation"),
        "Return the text that has arrived, None if there is none; StopAsyncIteration at the end.");
}

}  // namespace pronk::bindings
