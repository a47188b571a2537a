#include "acquisition.h"

#include <optional>
#include <utility>

#include "bindings.h"
#include "convert.h"
#include "errors.h"
#include "owner.h"
#include "permit_wait.h"
#include "pronk/error.h"
#include "pronk/scheduler.h"
#include "ready.h"
#include "release.h"

namespace pronk::bindings {
namespace {

// An awaitable of the permit. Throws DeadlockError.
nb::object queue(nb::handle_t<Acquisition> handle) {
  auto& self = nb::cast<Acquisition&>(handle);
  auto& scheduler = *nb::inst_ptr<InferenceScheduler>(self.scheduler);
  const CurrentTask task = current_task();
  const AcquireOptions options{self.priority, task.owner};
  std::optional<InferencePermit> free = scheduler.try_acquire(options);
  if (!free) {
    return wait_for_permit(scheduler, options, task.asyncio_task,
                           self.entered ? nb::borrow(handle) : nb::object());
  }
  nb::object permit = nb::cast(std::move(*free));
  if (self.entered) self.permit = permit;
  return ready(std::move(permit));
}

nb::object start(nb::handle_t<Acquisition> handle, bool entered) {
  auto& self = nb::cast<Acquisition&>(handle);
  if (self.used) {
    PyErr_SetString(
        PyExc_RuntimeError,
        "acquire_async: got a second use of one result, expected one await or async with, "
        "call acquire_async() again");
    throw nb::python_error();
  }
  self.used = true;
  self.entered = entered;
  try {
    return queue(handle);
  } catch (const DeadlockError&) {
    return python("pronk._async", "queue_some_turns")(handle);
  }
}

nb::object await(nb::handle_t<Acquisition> handle) {
  // Its own iterator, except for a coroutine.
  const nb::object awaitable = start(handle, false);
  return PyIter_Check(awaitable.ptr()) ? awaitable : awaitable.attr("__await__")();
}

nb::object enter(nb::handle_t<Acquisition> handle) { return start(handle, true); }

nb::object leave(Acquisition& self, nb::handle, nb::handle, nb::handle) {
  const nb::object permit = std::exchange(self.permit, nb::object());
  if (permit.is_valid()) release(*nb::inst_ptr<InferencePermit>(permit));
  return ready_none();
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (nb::inst_ready(self)) {
    auto* acquisition = nb::inst_ptr<Acquisition>(self);
    Py_VISIT(acquisition->scheduler.ptr());
    Py_VISIT(acquisition->permit.ptr());
  }
  return 0;
}

int clear(PyObject* self) {
  if (!nb::inst_ready(self)) return 0;
  auto* acquisition = nb::inst_ptr<Acquisition>(self);
  acquisition->scheduler.reset();
  acquisition->permit.reset();
  return 0;
}

PyType_Slot slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(&traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(&clear)},
    {0, nullptr},
};

}  // namespace

void bind_acquisition(nb::module_& m) {
  nb::class_<Acquisition>(
      m, "Acquisition", nb::type_slots(slots), nb::pooled(),
      "A permit to come: await it for the permit, or use it in ``async with``, which "
      "also gives the permit back. Once.\n\n"
      "Example:\n"
      "    >>> permit = await scheduler.acquire_async()")
      .def("__await__", &await,
           nb::sig("def __await__(self) -> collections.abc.Generator[typing.Any, typing.Any, "
                   "InferencePermit]"))
      .def("__aenter__", &enter,
           nb::sig("def __aenter__(self) -> collections.abc.Awaitable[InferencePermit]"))
      .def("__aexit__", &leave, unchecked("kind"), unchecked("error"), unchecked("traceback"),
           nb::sig("def __aexit__(self, kind: object, error: object, traceback: object, /) -> "
                   "collections.abc.Awaitable[None]"));
  // For pronk._async.
  m.def("queue", &queue, nb::arg("acquisition"),
        nb::sig("def queue(acquisition: Acquisition) -> "
                "collections.abc.Awaitable[InferencePermit]"),
        "Take a permit or a place in the queue; return an awaitable of the permit.");
  // For pronk._agent_run.
  m.def(
      "check_deadlock",
      [](const InferenceScheduler& scheduler, bool in_thread) {
        // A thread that blocks keeps the task that it runs, if any, from a release too.
        scheduler.check_deadlock(current_task().owner);
        if (in_thread) scheduler.check_deadlock(thread_owner());
      },
      nb::arg("scheduler"), nb::arg("in_thread"),
      "Raise DeadlockError when the running task or, if asked for, this thread itself holds every "
      "permit.");
}

}  // namespace pronk::bindings
