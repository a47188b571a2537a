// The gate.
#include "pronk/scheduler.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <cerrno>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "acquisition.h"
#include "bindings.h"
#include "chat.h"
#include "convert.h"
#include "errors.h"
#include "gil.h"
#include "log.h"
#include "owner.h"
#include "params.h"
#include "prompt.h"
#include "pronk/testing.h"
#include "signals.h"
#include "structured.h"

namespace pronk::bindings {
namespace {

using Scheduler = InferenceScheduler;

constexpr std::int64_t kMostConcurrent = 4096;
constexpr std::int64_t kMostTraceEvents = std::int64_t{1} << 26;

std::int32_t to_max_concurrent(nb::handle value) {
  return to_int32(value, {"max_concurrent", "pass how many inferences may run at once"}, 1,
                  kMostConcurrent);
}

std::shared_ptr<InferenceEngine> to_engine(nb::handle value) {
  if (!nb::isinstance<InferenceEngine>(value)) {
    throw_invalid_type({"engine", "load one with InferenceEngine.load()"}, value,
                       "an InferenceEngine");
  }
  return nb::cast<std::shared_ptr<InferenceEngine>>(value);
}

void construct(nb::handle_t<Scheduler> handle, nb::handle max_concurrent, nb::handle engine,
               nb::handle n_ctx, nb::handle max_waiting, nb::handle clock,
               const nb::kwargs& keywords) {
  SchedulerOptions options;
  options.max_concurrent = to_max_concurrent(max_concurrent);
  options.max_waiting =
      to_optional_int32(max_waiting, {"max_waiting", "pass None for no limit"}, 0);
  if (!clock.is_none()) {
    if (!nb::isinstance<testing::ManualClock>(clock)) {
      throw_invalid_type({"clock", "leave it out"}, clock, "None or a pronk.testing.ManualClock");
    }
    options.clock = nb::cast<testing::ManualClock&>(clock).clock();
  }
  const PoolOptions pool = to_pool_options(n_ctx, keywords);
  if (engine.is_none() && (!n_ctx.is_none() || keywords.size() != 0)) {
    throw InvalidArgumentError(
        "engine: got None with options of a pool, expected an InferenceEngine to go with them, "
        "pass engine= or give the options to init_pool()");
  }
  auto model = engine.is_none() ? nullptr : to_engine(engine);

  Scheduler* self = nb::inst_ptr<Scheduler>(handle);
  if (nb::inst_ready(handle)) {
    throw Error(ErrorCode::kError,
                "scheduler: got a second call of __init__, expected one, create another scheduler");
  }
  new (self) Scheduler(options);
  nb::inst_mark_ready(handle);
  if (model) self->set_pool(std::move(model), pool);
  python("pronk._exit", "watch")(handle);
}

InferencePermit acquire(Scheduler& self, nb::handle timeout, nb::handle priority) {
  const auto limit = to_timeout(timeout, {"timeout", "pass None to wait for ever"});
  const AcquireOptions options{to_priority(priority), thread_owner()};
  if (auto permit = self.try_acquire(options)) return *std::move(permit);

  Ticket ticket = self.enqueue(options);
  const bool decided = wait_with_signals(
      limit, [&] { return ticket.age(); },
      [&](Nanoseconds at_most, Nanoseconds slice) {
        return ticket.wait_for(at_most, slice) != TicketStatus::kWaiting;
      });
  if (!decided) {
    ticket.cancel(true);
    throw AcquireTimeout(
        "acquire: got no permit within " + repr_of(timeout) + " s (" +
        std::to_string(self.active_count()) + " of " + std::to_string(self.max_concurrent()) +
        " in use, " + std::to_string(self.waiting_count()) +
        " waiting), expected one to become free, wait longer or raise max_concurrent");
  }
  return ticket.take();
}

std::optional<InferencePermit> try_acquire(Scheduler& self) {
  return self.try_acquire({0, thread_owner()});
}

nb::object acquire_async(nb::handle_t<Scheduler> self, nb::handle priority) {
  nb::cast<Scheduler&>(self);  // refuses one that was never initialised
  return make_acquisition(nb::borrow(self), to_priority(priority));
}

void init_pool(Scheduler& self, nb::handle engine, nb::handle n_ctx, const nb::kwargs& keywords) {
  const PoolOptions options = to_pool_options(n_ctx, keywords);
  auto model = to_engine(engine);
  LogScope log;
  DetachGil detached;
  self.init_pool(std::move(model), options, look_up_signals(detached));
}

nb::object generate(Scheduler& self, nb::handle prompt, nb::handle priority,
                    const nb::kwargs& keywords) {
  const std::int32_t rank = to_priority(priority);
  const GenerationParams params = to_generation_params(keywords);
  Prompt converted = to_prompt(prompt);
  std::optional<Generation> generation;
  {
    DetachGil detached;
    self.create_pool(look_up_signals(detached));
    generation =
        std::visit([&](auto&& value) { return self.generate(std::move(value), params, rank); },
                   std::move(converted));
  }
  return with_schema(*std::move(generation), keywords);
}

nb::object chat(Scheduler& self, nb::handle messages, nb::handle priority, nb::handle tools,
                nb::handle tool_choice, nb::handle parallel_tool_calls, nb::handle chat_template,
                nb::handle template_kwargs, nb::handle response_format,
                const nb::kwargs& keywords) {
  const std::int32_t rank = to_priority(priority);
  const nb::kwargs all = with_response_format(keywords, response_format);
  const GenerationParams params = to_generation_params(all, "chat");
  const ChatParams chat_params =
      to_chat_params(tools, tool_choice, parallel_tool_calls, chat_template, template_kwargs);
  const std::string json = to_messages(messages);
  std::optional<Generation> generation;
  {
    DetachGil detached;
    self.create_pool(look_up_signals(detached));
    generation = self.chat(json, chat_params, params, rank);
  }
  return with_schema(*std::move(generation), all);
}

void start_trace(Scheduler& self, nb::handle max_events) {
  self.start_trace(static_cast<std::size_t>(
      to_int(max_events, {"max_events", "pass how many events to keep"}, 1, kMostTraceEvents)));
}

void stop_trace(Scheduler& self, nb::handle path) {
  const std::string file = to_path(path, {"path", "pass the file to write"});
  int error = 0;
  {
    DetachGil detached;
    std::ofstream out;
    errno = 0;
    // First, so that a file that cannot be written costs no recording.
    if (self.tracing()) out.open(file, std::ios::binary | std::ios::trunc);
    if (out) {
      self.stop_trace(out);
      out.close();
    }
    if (!out) error = errno != 0 ? errno : EIO;
  }
  if (error == 0) return;
  errno = error;
  PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path.ptr());
  throw nb::python_error();
}

bool close(nb::handle_t<Scheduler> handle, nb::handle drain, nb::handle timeout) {
  auto& self = nb::cast<Scheduler&>(handle);
  const bool finish_first = to_bool(drain, {"drain", "pass True to let running work finish"});
  const auto limit = to_timeout(timeout, {"timeout", "pass None to wait for ever"});
  LogScope log;
  DetachGil detached;
  return self.close(finish_first, limit, look_up_signals(detached));
}

std::string repr(const Scheduler& self) {
  return "<pronk.InferenceScheduler max_concurrent=" + std::to_string(self.max_concurrent()) +
         " active=" + std::to_string(self.active_count()) +
         " waiting=" + std::to_string(self.waiting_count()) + (self.closed() ? " closed>" : ">");
}

constexpr const char* kDoc =
    "A fair counting semaphore over inferences, with a pool of contexts behind it once it has an "
    "engine.\n\n"
    "At most ``max_concurrent`` permits are out at once; whoever asks for more waits in order: "
    "first come\n"
    "first served within a priority, and waiting raises priority slowly. Without an engine it is a "
    "plain\n"
    "semaphore. All methods may be called from any thread. Use it in a with statement to close it "
    "at the\n"
    "end.\n\n"
    "Args:\n"
    "    max_concurrent: Permits that may be held at once, in [1, 4096].\n"
    "    engine: Creates the pool at its first use, like a call of init_pool().\n"
    "    max_waiting: Most waiters; one more gets QueueFullError. None is unbounded.\n"
    "    clock: A pronk.testing.ManualClock, for tests; None is real time.\n" PRONK_POOL_ARGS
    "\n"
    "Raises:\n"
    "    pronk.InvalidArgumentError, pronk.InvalidTypeError: A bad argument.\n\n"
    "Example:\n"
    "    >>> scheduler = pronk.InferenceScheduler(4, engine=engine, n_ctx=4096)\n"
    "    >>> with scheduler.acquire(timeout=5.0) as permit:\n"
    "    ...     text = permit.generate('Once upon', max_tokens=64).result().text";

}  // namespace

void bind_scheduler(nb::module_& m) {
  nb::class_<Scheduler>(m, "InferenceScheduler", nb::is_weak_referenceable(), kDoc)
      .def("__init__", &construct, unchecked("max_concurrent"), nb::kw_only(),
           unchecked("engine") = nb::none(), unchecked("n_ctx") = nb::none(),
           unchecked("max_waiting") = nb::none(), unchecked("clock") = nb::none(),
           nb::arg("pool_options"),
           nb::sig(
               "def __init__(self, max_concurrent: int, *, engine: InferenceEngine | None = None, "
               "n_ctx: int | None = None, max_waiting: int | None = None, "
               "clock: ManualClock | None = None, " PRONK_POOL_KEYWORDS ") -> None"))
      .def("acquire", &acquire, nb::kw_only(), unchecked("timeout") = nb::none(),
           unchecked("priority") = 0,
           nb::sig("def acquire(self, *, timeout: float | None = None, priority: int = 0) -> "
                   "InferencePermit"),
           "Wait for a permit, in order. Other threads run meanwhile, Ctrl-C interrupts it.\n\n"
           "Args:\n"
           "    timeout: Seconds to wait at most; None waits for ever, 0 not at all.\n"
           "    priority: In [-1000, 1000]; higher goes first.\n\n"
           "Raises:\n"
           "    pronk.AcquireTimeout: No permit became free in time. Also a TimeoutError.\n"
           "    pronk.SchedulerClosedError: The scheduler was closed before or meanwhile.\n"
           "    pronk.QueueFullError: ``max_waiting`` others wait already.\n"
           "    pronk.DeadlockError: This thread itself holds every permit.")
      .def("try_acquire", &try_acquire,
           "Return a permit if one is free and nobody waits for it, else None. Never waits.")
      .def("acquire_async", &acquire_async, nb::kw_only(), unchecked("priority") = 0,
           nb::sig("def acquire_async(self, *, priority: int = 0) -> Acquisition"),
           "Return an awaitable permit, which ``async with`` accepts too.\n\n"
           "Cancelling the waiting task gives its place, or the permit it was just granted, to the "
           "next.\n\n"
           "Args:\n"
           "    priority: In [-1000, 1000]; higher goes first.\n\n"
           "Example:\n"
           "    >>> async with scheduler.acquire_async() as permit:\n"
           "    ...     done = await permit.generate('Hi', max_tokens=8)")
      .def("init_pool", &init_pool, unchecked("engine"), unchecked("n_ctx") = nb::none(),
           nb::arg("pool_options"),
           nb::sig("def init_pool(self, engine: InferenceEngine, n_ctx: int | None = None, "
                   "*, " PRONK_POOL_KEYWORDS ") -> None"),
           "Create the contexts in which permits compute. Once per scheduler.\n\n"
           "Args:\n"
           "    engine: The model.\n" PRONK_POOL_ARGS
           "\n"
           "Raises:\n"
           "    pronk.InsufficientMemoryError: They do not fit into memory.\n"
           "    pronk.InvalidArgumentError: A value is out of range.")
      .def("generate", &generate, unchecked("prompt"), nb::kw_only(), unchecked("priority") = 0,
           nb::arg("params"),
           nb::sig("def generate(self, prompt: str | collections.abc.Sequence[int], *, priority: "
                   "int = 0, " PRONK_GENERATE_KEYWORDS ") -> Generation"),
           "Start a completion that waits for its own permit, runs and gives it back. Returns at "
           "once.\n\n"
           "Args:\n"
           "    priority: In [-1000, 1000]; higher goes first.\n" PRONK_GENERATE_ARGS
           "\n"
           "Example:\n"
           "    >>> running = [scheduler.generate(p, max_tokens=32) for p in prompts]\n"
           "    >>> texts = [g.result().text for g in running]")
      .def("chat", &chat, unchecked("messages"), nb::kw_only(), unchecked("priority") = 0,
           unchecked("tools") = nb::none(), unchecked("tool_choice") = "auto",
           unchecked("parallel_tool_calls") = nb::none(), unchecked("chat_template") = nb::none(),
           unchecked("template_kwargs") = nb::none(), unchecked("response_format") = nb::none(),
           nb::arg("params"),
           nb::sig("def chat(self, messages: "
                   "collections.abc.Sequence[collections.abc.Mapping[str, typing.Any]], *, "
                   "priority: int = 0, " PRONK_CHAT_KEYWORDS ", " PRONK_FORMAT_KEYWORD
                   ", " PRONK_GENERATE_KEYWORDS ") -> Generation"),
           "Start the answer to a chat, which waits for its own permit, runs and gives it back. "
           "Returns\n"
           "at once.\n\n"
           "Args:\n"
           "    priority: In [-1000, 1000]; higher goes first.\n" PRONK_CHAT_ARGS
               PRONK_FORMAT_ARG PRONK_SAMPLING_ARGS
           "\n"
           "Raises:\n"
           "    As InferencePermit.chat() does.\n\n"
           "Example:\n"
           "    >>> running = scheduler.chat([{'role': 'user', 'content': 'Hi'}], max_tokens=64)\n"
           "    >>> running.result().message['content']\n"
           "    'Hello! How can I help you today?'")
      .def(
          "resize", [](Scheduler& self, nb::handle n) { self.resize(to_max_concurrent(n)); },
          unchecked("max_concurrent"), nb::sig("def resize(self, max_concurrent: int) -> None"),
          "Change the number of permits.\n\n"
          "Args:\n"
          "    max_concurrent: Permits that may be held at once, in [1, 4096], and no more than a "
          "pool has\n"
          "        lanes. Fewer take effect as permits come back.\n\n"
          "Raises:\n"
          "    pronk.InvalidArgumentError: The number is out of range.")
      .def("close", &close, nb::kw_only(), unchecked("drain") = false,
           unchecked("timeout") = nb::none(),
           nb::sig("def close(self, *, drain: bool = False, timeout: float | None = None) -> bool"),
           "End the scheduler. May be called twice.\n\n"
           "Waiters get SchedulerClosedError.\n\n"
           "Args:\n"
           "    drain: Let running and waiting work finish first, instead of cancelling it.\n"
           "    timeout: Seconds to wait at most for everything to stop.\n\n"
           "Returns:\n"
           "    True when everything has stopped, False when something was still running at the "
           "timeout.")
      .def_prop_ro("max_concurrent", &Scheduler::max_concurrent,
                   "Permits that may be held at once.")
      .def_prop_ro("active_count", &Scheduler::active_count, "Permits held now.")
      .def_prop_ro("waiting_count", &Scheduler::waiting_count,
                   "Waiters now: threads, tasks, generations.")
      .def_prop_ro("engine", &Scheduler::engine,
                   nb::sig("def engine(self) -> InferenceEngine | None"), "The model, or None.")
      .def_prop_ro("closed", &Scheduler::closed, "Whether close() was called.")
      .def("statistics", &Scheduler::statistics,
           "Return a snapshot of the counters. Never waits for a decode step.")
      .def("start_trace", &start_trace, nb::kw_only(), unchecked("max_events") = 1 << 20,
           nb::sig("def start_trace(self, *, max_events: int = 1048576) -> None"),
           "Start to record what happens: waits for permits, generations, prompt chunks, decode "
           "steps.\n\n"
           "Args:\n"
           "    max_events: Events kept, in [1, 2**26]; older ones give way. 64 bytes each, taken "
           "as they\n"
           "        come. A step with n running generations makes n + 4.\n\n"
           "Raises:\n"
           "    pronk.InvalidArgumentError: Out of range, or something is recorded already.\n\n"
           "Example:\n"
           "    >>> scheduler.start_trace()\n"
           "    >>> try:\n"
           "    ...     run_agents(scheduler)\n"
           "    ... finally:\n"
           "    ...     scheduler.stop_trace('run.json')    # open it at https://ui.perfetto.dev")
      .def("stop_trace", &stop_trace, unchecked("path"),
           nb::sig("def stop_trace(self, path: str | os.PathLike[str]) -> None"),
           "End the recording and write it as trace event JSON, which Perfetto opens.\n\n"
           "Never waits for a decode step; what still runs is marked so. A closed scheduler can "
           "write its\n"
           "trace too.\n\n"
           "Args:\n"
           "    path: The file to write; one that exists is replaced.\n\n"
           "Raises:\n"
           "    OSError: The file cannot be written. If it could not even be opened, the recording "
           "goes on.\n"
           "    pronk.InvalidArgumentError: Nothing is recorded.")
      .def_prop_ro("tracing", &Scheduler::tracing, "Whether start_trace() records now.")
      .def(
          "__enter__", [](nb::handle_t<Scheduler> self) { return nb::borrow(self); },
          nb::sig("def __enter__(self) -> InferenceScheduler"))
      .def(
          "__exit__",
          [](Scheduler& self, nb::handle, nb::handle, nb::handle) {
            LogScope log;
            DetachGil detached;
            self.close(false, std::nullopt, look_up_signals(detached));
          },
          unchecked("kind"), unchecked("error"), unchecked("traceback"),
          nb::sig("def __exit__(self, kind: object, error: object, traceback: object, /) -> None"))
      .def("__repr__", &repr);
}

}  // namespace pronk::bindings
