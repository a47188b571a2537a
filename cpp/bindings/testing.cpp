// The scripted model and the manual clock, as pronk.testing uses them.
#include "pronk/testing.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "bindings.h"
#include "convert.h"
#include "errors.h"
#include "gil.h"
#include "prompt.h"
#include "signals.h"

namespace pronk::bindings {
namespace {

using testing::Fault;
using testing::FaultKind;
using testing::FaultPoint;
using testing::ManualClock;
using testing::ScriptedModel;
using testing::ScriptedOptions;

template <class Value>
struct Word {
  const char* name;
  Value value;
};

constexpr Word<MemoryKind> kMemoryKinds[] = {{"plain", MemoryKind::kPlain},
                                             {"sliding_window", MemoryKind::kSlidingWindow},
                                             {"recurrent", MemoryKind::kRecurrent},
                                             {"hybrid", MemoryKind::kHybrid}};
constexpr Word<FaultPoint> kFaultPoints[] = {{"decode", FaultPoint::kDecode},
                                             {"seq_remove", FaultPoint::kSeqRemove},
                                             {"seq_copy", FaultPoint::kSeqCopy},
                                             {"make_backend", FaultPoint::kMakeBackend}};
constexpr Word<FaultKind> kFaultKinds[] = {{"no_slot", FaultKind::kNoSlot},
                                           {"aborted", FaultKind::kAborted},
                                           {"invalid_batch", FaultKind::kInvalidBatch},
                                           {"no_memory", FaultKind::kNoMemory},
                                           {"failed", FaultKind::kFailed},
                                           {"runtime_error", FaultKind::kRuntimeError},
                                           {"bad_alloc", FaultKind::kBadAlloc},
                                           {"foreign_exception", FaultKind::kForeignException},
                                           {"sleep", FaultKind::kSleep},
                                           {"block", FaultKind::kBlock},
                                           {"nan_logits", FaultKind::kNanLogits},
                                           {"impossible_logits", FaultKind::kImpossibleLogits},
                                           {"refuse", FaultKind::kReturnFalse}};

template <class Value, std::size_t n>
Value to_word(nb::handle value, const char* name, const Word<Value> (&words)[n]) {
  const Argument argument{name, "choose one of them"};
  const std::string_view got = to_string_view(value, argument);
  std::string allowed = "one of ";
  for (const auto& word : words) {
    if (got == word.name) return word.value;
    allowed += std::string(&word == words ? "'" : ", '") + word.name + "'";
  }
  throw_invalid_value(argument, value, allowed);
}

Nanoseconds to_duration(nb::handle value, const char* name) {
  const Argument argument{name, "pass seconds"};
  const auto duration = to_timeout(value, argument);
  if (!duration) throw_invalid_value(argument, value, "a finite number of seconds >= 0");
  return *duration;
}

std::int32_t to_count(nb::handle value, const char* name) {
  return to_int32(value, {name, "pass how many"}, 1);
}

std::vector<std::string> to_pieces(nb::handle value) {
  std::vector<std::string> pieces;
  if (value.is_none()) return pieces;
  for (const nb::handle piece : value) {
    if (PyUnicode_Check(piece.ptr())) {
      pieces.emplace_back(to_string_view(piece, {"pieces", "pass bytes"}));
    } else if (PyBytes_Check(piece.ptr())) {
      const auto bytes = nb::borrow<nb::bytes>(piece);
      pieces.emplace_back(bytes.c_str(), bytes.size());
    } else {
      throw_invalid_type({"pieces", "pass the text of every token"}, piece, "str or bytes");
    }
  }
  if (pieces.empty())
    throw_invalid_value({"pieces", "pass None for single bytes"}, value, "one text or more");
  return pieces;
}

void construct(nb::handle_t<ScriptedModel> handle, nb::handle pieces, nb::handle memory_kind,
               nb::handle n_swa, nb::handle n_ctx_train, nb::handle add_bos, nb::handle seed,
               nb::handle chat_template, const ManualClock* clock) {
  ScriptedOptions options;
  options.pieces = to_pieces(pieces);
  options.memory_kind = to_word(memory_kind, "memory_kind", kMemoryKinds);
  options.n_swa = to_int32(n_swa, {"n_swa", "pass the tokens in the window"}, 0);
  options.n_ctx_train = to_int32(n_ctx_train, {"n_ctx_train", "pass tokens"}, 1);
  options.add_bos = to_bool(add_bos, {"add_bos", "pass True to put <bos> before a text"});
  options.seed = to_uint64(seed, {"seed", "pass any"});
  if (!chat_template.is_none()) {
    options.chat_template =
        to_string_view(chat_template, {"chat_template", "pass a Jinja template, or None"});
  }
  if (clock != nullptr) options.clock = *clock;
  if (nb::inst_ready(handle)) {
    throw Error(ErrorCode::kError,
                "model: got a second call of __init__, expected one, create another model");
  }
  new (nb::inst_ptr<ScriptedModel>(handle)) ScriptedModel(options);
  nb::inst_mark_ready(handle);
}

std::vector<Token> to_text(const ScriptedModel& model, nb::handle value, bool add_special) {
  Prompt prompt = to_prompt(value);
  if (auto* text = std::get_if<std::string_view>(&prompt))
    return model.engine()->tokenize(*text, add_special);
  return std::get<std::vector<Token>>(std::move(prompt));
}

void add_fault(ScriptedModel& self, nb::handle kind, nb::handle point, nb::handle call,
               nb::handle times, nb::handle applied, nb::handle seconds, nb::handle ignore_abort) {
  Fault fault;
  fault.point = to_word(point, "point", kFaultPoints);
  fault.kind = to_word(kind, "kind", kFaultKinds);
  if (!call.is_none()) {
    const Argument argument{"call", "count from 1, or pass None for the next"};
    fault.call = static_cast<std::uint64_t>(to_int(call, argument, 1, INT64_MAX));
  }
  fault.times = times.is_none() ? -1 : to_int(times, {"times", "pass None for ever"}, 1, INT64_MAX);
  fault.applied = to_int32(applied, {"applied", "pass a number of tokens"}, 0);
  fault.duration = to_duration(seconds, "seconds");
  fault.ignore_abort = to_bool(ignore_abort, {"ignore_abort", "pass True for a hung device"});
  self.add_fault(fault);
}

/// Waits in real time for the model to reach a state, as long as `timeout` says.
template <class Wait>
bool wait_until(nb::handle timeout, Wait&& wait) {
  return wait_with_signals(
      to_timeout(timeout, {"timeout", "pass None to wait for ever"}),
      [] { return std::chrono::steady_clock::now().time_since_epoch(); },
      [&](Nanoseconds at_most, Nanoseconds slice) { return wait(std::min(at_most, slice)); });
}

nb::dict counters(const ScriptedModel& self) {
  const auto counters = self.counters();
  nb::dict result;
  result["decode_calls"] = counters.decode_calls;
  result["decodes_finished"] = counters.decodes_finished;
  result["seq_remove_calls"] = counters.seq_remove_calls;
  result["seq_copy_calls"] = counters.seq_copy_calls;
  result["items"] = counters.items;
  result["outputs"] = counters.outputs;
  result["contexts_made"] = counters.backends_made;
  result["contexts_alive"] = counters.backends_alive;
  result["most_decoding"] = counters.most_decoding;
  result["most_sequences"] = counters.most_sequences;
  result["sequence_items"] = counters.sequence_items;
  return result;
}

nb::list batches(const ScriptedModel& self) {
  nb::list result;
  for (const auto& batch : self.batches()) {
    nb::list items;
    for (const auto& item : batch.items)
      items.append(nb::make_tuple(item.token, item.pos, item.seq, item.output));
    result.append(nb::make_tuple(batch.backend, batch.call, items, batch.result));
  }
  return result;
}

void bind_clock(nb::module_& m) {
  nb::class_<ManualClock>(
      m, "ManualClock",
      "A clock for InferenceScheduler(clock=...) that stands still until it is told to move.\n\n"
      "May be used from any thread.\n\n"
      "Example:\n"
      "    >>> clock = pronk.testing.ManualClock()\n"
      "    >>> scheduler = pronk.InferenceScheduler(1, clock=clock)\n"
      "    >>> clock.advance(5.0)\n"
      "    >>> clock.now()\n"
      "    5.0")
      .def(nb::init<>())
      .def(
          "now",
          [](const ManualClock& self) { return std::chrono::duration<double>(self.now()).count(); },
          "Return the seconds since the clock was created.")
      .def(
          "advance",
          [](ManualClock& self, nb::handle seconds) {
            const Nanoseconds by = to_duration(seconds, "seconds");
            DetachGil detached;
            self.advance(by);
          },
          nb::arg("seconds"), nb::sig("def advance(self, seconds: float) -> None"),
          "Move the time forward and wake whatever waits for it.\n\n"
          "Args:\n"
          "    seconds: How far, 0 or more.\n\n"
          "Raises:\n"
          "    pronk.InvalidArgumentError: The step is negative or not finite.")
      .def_prop_ro("waiters", &ManualClock::waiters, "Waits that are blocked on this clock now.")
      .def(
          "wait_for_waiters",
          [](const ManualClock& self, nb::handle count, nb::handle timeout) {
            const std::int32_t n = to_count(count, "count");
            return wait_until(
                timeout, [&](Nanoseconds at_most) { return self.wait_for_waiters(n, at_most); });
          },
          nb::arg("count") = 1, nb::arg("timeout").none() = 10.0,
          nb::sig(
              "def wait_for_waiters(self, count: int = 1, timeout: float | None = 10.0) -> bool"),
          "Wait, in real time, until ``count`` waits are blocked on this clock.\n\n"
          "Args:\n"
          "    count: 1 or more.\n"
          "    timeout: Real seconds at most; None waits for ever.\n\n"
          "Returns:\n"
          "    False when the timeout came first.");
}

}  // namespace

void bind_testing(nb::module_& m) {
  bind_clock(m);
  using M = ScriptedModel;
  nb::class_<M>(m, "ScriptedModel", "What pronk.testing.ScriptedModel is made of.")
      .def("__init__", &construct, nb::arg("pieces").none(), nb::arg("memory_kind"),
           nb::arg("n_swa"), nb::arg("n_ctx_train"), nb::arg("add_bos"), nb::arg("seed"),
           nb::arg("chat_template").none(), nb::arg("clock").none(),
           nb::sig(
               "def __init__(self, pieces: collections.abc.Iterable[str | bytes] | None, "
               "memory_kind: str, "
               "n_swa: int, n_ctx_train: int, add_bos: bool, seed: int, chat_template: str | None, "
               "clock: ManualClock | None) -> None"))
      .def_prop_ro("engine", &M::engine)
      .def(
          "script",
          [](M& self, nb::handle prompt, nb::handle completion) {
            if (PyBytes_Check(completion.ptr())) {
              const auto bytes = nb::borrow<nb::bytes>(completion);
              self.script(to_text(self, prompt, true),
                          self.tokenize({bytes.c_str(), bytes.size()}));
            } else {
              self.script(to_text(self, prompt, true), to_text(self, completion, false));
            }
          },
          nb::arg("prompt"), nb::arg("completion"),
          nb::sig("def script(self, prompt: str | collections.abc.Sequence[int], "
                  "completion: str | bytes | collections.abc.Sequence[int]) -> None"))
      .def(
          "expected",
          [](const M& self, nb::handle prompt, nb::handle n) {
            const std::vector<Token> text = to_text(self, prompt, true);
            const std::int32_t limit = to_int32(n, {"n", "pass a number of tokens"}, 0);
            DetachGil detached;
            return self.expected(text, limit);
          },
          nb::arg("prompt"), nb::arg("n"),
          nb::sig("def expected(self, prompt: str | collections.abc.Sequence[int], n: int) -> "
                  "list[int]"))
      .def("add_fault", &add_fault, nb::arg("kind"), nb::arg("point"), nb::arg("call").none(),
           nb::arg("times").none(), nb::arg("applied"), nb::arg("seconds"), nb::arg("ignore_abort"),
           nb::sig("def add_fault(self, kind: str, point: str, call: int | None, times: int | "
                   "None, applied: int, "
                   "seconds: float, ignore_abort: bool) -> None"))
      .def("clear_faults", &M::clear_faults)
      .def(
          "wait_blocked",
          [](const M& self, nb::handle timeout, nb::handle count) {
            const std::int32_t n = to_count(count, "count");
            return wait_until(timeout,
                              [&](Nanoseconds at_most) { return self.wait_blocked(at_most, n); });
          },
          nb::arg("timeout").none(), nb::arg("count"),
          nb::sig("def wait_blocked(self, timeout: float | None, count: int) -> bool"))
      .def("release_blocked", &M::release_blocked)
      .def("hold", &M::hold)
      .def(
          "wait_held",
          [](const M& self, nb::handle timeout, nb::handle count) {
            const std::int32_t n = to_count(count, "count");
            return wait_until(timeout,
                              [&](Nanoseconds at_most) { return self.wait_held(at_most, n); });
          },
          nb::arg("timeout").none(), nb::arg("count"),
          nb::sig("def wait_held(self, timeout: float | None, count: int) -> bool"))
      .def(
          "step", [](M& self, nb::handle n) { self.step(to_count(n, "n")); }, nb::arg("n"),
          nb::sig("def step(self, n: int) -> None"))
      .def("resume", &M::resume)
      .def(
          "wait_decodes",
          [](const M& self, nb::handle count, nb::handle timeout) {
            const std::uint64_t n = to_uint64(count, {"count", "pass how many"});
            return wait_until(timeout,
                              [&](Nanoseconds at_most) { return self.wait_decodes(n, at_most); });
          },
          nb::arg("count"), nb::arg("timeout").none(),
          nb::sig("def wait_decodes(self, count: int, timeout: float | None) -> bool"))
      .def(
          "set_delay",
          [](M& self, nb::handle per_decode, nb::handle per_token) {
            self.set_delay(to_duration(per_decode, "per_decode"),
                           to_duration(per_token, "per_token"));
          },
          nb::arg("per_decode"), nb::arg("per_token"),
          nb::sig("def set_delay(self, per_decode: float, per_token: float) -> None"))
      .def("counters", &counters, nb::sig("def counters(self) -> dict[str, typing.Any]"))
      .def("violations", &M::violations)
      .def(
          "record",
          [](M& self, nb::handle on) {
            self.record(to_bool(on, {"on", "pass True to keep batches"}));
          },
          nb::arg("on"), nb::sig("def record(self, on: bool) -> None"))
      .def("batches", &batches,
           nb::sig(
               "def batches(self) -> list[tuple[int, int, list[tuple[int, int, int, bool]], str]]"))
      .def("sequences", &M::sequences)
      .def("cells_used", &M::cells_used);
}

}  // namespace pronk::bindings
