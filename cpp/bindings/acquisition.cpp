#include "acquisition.h"

#include <optional>
#include <utility>

#include "bindings.h"
#include "convert.h"
#include "errors.h"
#include "owner.h"
#include "pronk/scheduler.h"
#include "ready.h"

namespace pronk::bindings {
namespace {

// The permit, if one is free; else not valid.
nb::object start(Acquisition& self) {
  if (self.used) {
    PyErr_SetString(
        PyExc_RuntimeError,
        "acquire_async: got a second use of one result, expected one await or async with, "
        "call acquire_async() again");
    throw nb::python_error();
  }
  self.used = true;
  auto& scheduler = nb::cast<InferenceScheduler&>(self.scheduler);
  std::optional<InferencePermit> permit = scheduler.try_acquire({self.priority, task_owner()});
  return permit ? nb::cast(std::move(*permit)) : nb::object();
}

nb::object await(nb::handle_t<Acquisition> handle) {
  nb::object permit = start(nb::cast<Acquisition&>(handle));
  if (permit.is_valid()) return ready(std::move(permit));
  return python("pronk._async", "wait_for_permit")(handle).attr("__await__")();
}

nb::object enter(nb::handle_t<Acquisition> handle) {
  auto& self = nb::cast<Acquisition&>(handle);
  nb::object permit = start(self);
  if (!permit.is_valid()) return python("pronk._async", "enter")(handle);
  self.permit = permit;
  return ready(std::move(permit));
}

nb::object leave(Acquisition& self, nb::handle, nb::handle, nb::handle) {
  const nb::object permit = std::exchange(self.permit, nb::object());
  if (permit.is_valid()) nb::cast<InferencePermit&>(permit).release();
  return ready(nb::none());
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
      "also gives the permit back. Once.")
      .def("__await__", &await,
           nb::sig("def __await__(self) -> collections.abc.Generator[typing.Any, typing.Any, "
                   "InferencePermit]"))
      .def("__aenter__", &enter,
           nb::sig("def __aenter__(self) -> collections.abc.Awaitable[InferencePermit]"))
      .def("__aexit__", &leave, unchecked("kind"), unchecked("error"), unchecked("traceback"),
           nb::sig("def __aexit__(self, kind: object, error: object, traceback: object, /) -> "
                   "collections.abc.Awaitable[None]"));
  // For pronk._async.
  m.def(
      "hold",
      [](Acquisition& acquisition, nb::handle_t<InferencePermit> permit) {
        acquisition.permit = nb::borrow(permit);
      },
      nb::arg("acquisition"), nb::arg("permit"),
      "Have ``async with`` release this permit at its end.");
  m.def(
      "enqueue",
      [](Acquisition& acquisition) {
        auto& scheduler = nb::cast<InferenceScheduler&>(acquisition.scheduler);
        return scheduler.enqueue({acquisition.priority, task_owner()});
      },
      nb::arg("acquisition"), "Take a place in the queue.");
  // For pronk._agent_run.
  m.def(
      "check_deadlock",
      [](const InferenceScheduler& scheduler, bool in_thread) {
        // A thread that blocks keeps the task that it runs, if any, from a release too.
        scheduler.check_deadlock(task_owner());
        if (in_thread) scheduler.check_deadlock(thread_owner());
      },
      nb::arg("scheduler"), nb::arg("in_thread"),
      "Raise DeadlockError when the running task or, if asked for, this thread itself holds every "
      "permit.");
}

}  // namespace pronk::bindings
