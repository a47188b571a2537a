// One running completion, for every style of waiting.
#include "pronk/generation.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>

#include "bindings.h"
#include "convert.h"
#include "errors.h"
#include "mailbox.h"
#include "ready.h"
#include "signals.h"

namespace pronk::bindings {
namespace {

// Looks for text, and waits for it if `wait`.
StreamStatus next_text(Generation& self, std::string& piece, bool wait) {
  try {
    StreamStatus status = self.next_for(piece, Nanoseconds(0));
    if (status != StreamStatus::kTimeout || !wait) return status;
    wait_with_signals(
        std::nullopt, [&] { return self.age(); },
        [&](Nanoseconds at_most, Nanoseconds slice) {
          status = self.next_for(piece, at_most, slice);
          return status != StreamStatus::kTimeout;
        });
    return status;
  } catch (const GenerationCancelled& error) {
    raise_cancelled(error, nb::cast(self.result()));
  }
}

std::string next_piece(Generation& self) {
  std::string piece;
  if (next_text(self, piece, true) == StreamStatus::kEnd) throw nb::stop_iteration();
  return piece;
}

nb::object next_piece_async(nb::handle_t<Generation> self) {
  std::string piece;
  switch (next_text(nb::cast<Generation&>(self), piece, false)) {
    case StreamStatus::kPiece:
      return ready(nb::cast(piece));
    case StreamStatus::kEnd:
      return ready_end();
    case StreamStatus::kTimeout:
      break;
  }
  return python("pronk._async", "next_piece")(self);
}

Completion result(Generation& self, nb::handle timeout) {
  const auto limit = to_timeout(timeout, {"timeout", "pass None to wait for ever"});
  if (!self.done() &&
      !wait_with_signals(
          limit, [&] { return self.age(); },
          [&](Nanoseconds at_most, Nanoseconds slice) { return self.wait_for(at_most, slice); })) {
    throw ResultTimeout("result: got no end of the generation within " + repr_of(timeout) +
                        " s, expected it to finish in time, wait longer or cancel() it");
  }
  return self.result();
}

nb::object await(nb::handle_t<Generation> self) {
  const Generation& generation = nb::cast<Generation&>(self);
  if (generation.done()) return ready(nb::cast(generation.result()));
  return python("pronk._async", "wait_for_result")(self).attr("__await__")();
}

std::optional<std::string> take(Generation& self) {
  std::string piece;
  switch (next_text(self, piece, false)) {
    case StreamStatus::kPiece:
      return piece;
    case StreamStatus::kTimeout:
      return std::nullopt;
    case StreamStatus::kEnd:
      break;
  }
  PyErr_SetNone(PyExc_StopAsyncIteration);
  throw nb::python_error();
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
      .def("__next__", &next_piece)
      .def(
          "__aiter__", [](nb::handle_t<Generation> self) { return nb::borrow(self); },
          nb::sig("def __aiter__(self) -> Generation"))
      .def("__anext__", &next_piece_async,
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
      .def("cancel", &Generation::cancel,
           "End the generation within one decode step. Never blocks, may be called twice.")
      .def_prop_ro("done", &Generation::done, "True once the generation has ended, whatever way.")
      .def_prop_ro("text", &Generation::text, "All text so far, taken or not.")
      .def("__repr__", [](const Generation& self) {
        return std::string("<pronk.Generation ") + (self.done() ? "done" : "running") + ", " +
               std::to_string(self.text().size()) + " bytes>";
      });

  // For pronk._async; not methods, so that they are not part of the public class.
  m.def(
      "listen",
      [](Generation& generation, const MailboxHandle& mailbox, std::uint64_t key) {
        generation.listen({mailbox.mailbox, key});
      },
      nb::arg("generation"), nb::arg("mailbox"), nb::arg("key"),
      "Post the key to the mailbox whenever text arrives and at the end.");
  m.def("take", &take, nb::arg("generation"),
        "Return the text that has arrived, None if there is none; StopAsyncIteration at the end.");
}

}  // namespace pronk::bindings
