#include "permit_wait.h"

#include <utility>

#include "acquisition.h"
#include "bindings.h"
#include "errors.h"

namespace pronk::bindings {
namespace {

PermitWait& wait_of(PyObject* self) { return *nb::inst_ptr<PermitWait>(self); }

PyObject* self_of(PyObject* self) {
  Py_INCREF(self);
  return self;
}

// The wait is over, as far as the loop is concerned.
PyObject* finish(PermitWait& self) {
  try {
    nb::object permit = nb::cast(self.ticket->take());
    if (self.acquisition.is_valid()) {
      nb::inst_ptr<Acquisition>(self.acquisition)->permit = permit;
    }
    self.stop();
    return permit.release().ptr();
  } catch (...) {
    set_error_from_current_exception();
    self.stop();
    return nullptr;
  }
}

PySendResult send(PyObject* object, PyObject* value, PyObject** result) {
  *result = nullptr;
  if (!nb::inst_ready(object) || !wait_of(object).waiting.is_valid()) {
    PyErr_SetString(PyExc_RuntimeError, "acquire_async: got a wait that is over");
    return PYGEN_ERROR;
  }
  PermitWait& self = wait_of(object);
  const nb::object waiting = self.waiting;  // lives on whatever happens in there
  PyObject* yielded = nullptr;
  switch (PyIter_Send(waiting.ptr(), value, &yielded)) {
    case PYGEN_NEXT:
      *result = yielded;
      return PYGEN_NEXT;
    case PYGEN_RETURN:
      Py_DECREF(yielded);
      *result = finish(self);
      return *result ? PYGEN_RETURN : PYGEN_ERROR;
    default:
      self.stop();
      return PYGEN_ERROR;
  }
}

// What a generator's method gives to its caller: a value that was yielded, or an exception.
PyObject* as_iteration(PySendResult status, PyObject* result) {
  if (status != PYGEN_RETURN) return result;
  const nb::object value = nb::steal(result);
  const nb::object stop =
      nb::steal(PyObject_CallFunctionObjArgs(PyExc_StopIteration, result, nullptr));
  if (stop.is_valid()) PyErr_SetObject(PyExc_StopIteration, stop.ptr());
  return nullptr;
}

PyObject* next(PyObject* self) {
  PyObject* result = nullptr;
  const PySendResult status = send(self, Py_None, &result);
  return as_iteration(status, result);
}

nb::object throw_into(PermitWait& self, const nb::args& error) {
  if (!self.waiting.is_valid()) {
    PyErr_SetString(PyExc_RuntimeError, "acquire_async: got a wait that is over");
    throw nb::python_error();
  }
  const nb::object waiting = self.waiting;
  try {
    return waiting.attr("throw")(*error);  // it may go on waiting
  } catch (nb::python_error& raised) {
    if (raised.matches(PyExc_StopIteration)) {
      PyObject* permit = finish(self);
      if (permit) as_iteration(PYGEN_RETURN, permit);
      throw nb::python_error();
    }
    self.stop();
    throw;
  }
}

void close(PermitWait& self) {
  const nb::object waiting = std::exchange(self.waiting, nb::object());
  self.stop();
  if (waiting.is_valid()) waiting.attr("close")();
}

int traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  if (nb::inst_ready(object)) {
    const PermitWait& self = wait_of(object);
    Py_VISIT(self.acquisition.ptr());
    Py_VISIT(self.mailbox.ptr());
    Py_VISIT(self.signal.ptr());
    Py_VISIT(self.waiting.ptr());
  }
  return 0;
}

int clear(PyObject* object) {
  if (nb::inst_ready(object)) wait_of(object).stop();
  return 0;
}

PyType_Slot slots[] = {
    {Py_am_await, reinterpret_cast<void*>(&self_of)},
    {Py_am_send, reinterpret_cast<void*>(&send)},
    {Py_tp_iter, reinterpret_cast<void*>(&self_of)},
    {Py_tp_iternext, reinterpret_cast<void*>(&next)},
    {Py_tp_traverse, reinterpret_cast<void*>(&traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(&clear)},
    {0, nullptr},
};

}  // namespace

void PermitWait::wake() {
  const nb::object woken = signal;  // lives on whatever that does
  if (!woken.is_valid()) return;
  try {
    // One that is done was cancelled: its task is on its way to throw_into().
    if (woken.attr("done")().is(nb::handle(Py_False))) woken.attr("set_result")(nb::none());
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("pronk: waking a task that got its permit");
  }
}

void PermitWait::stop() noexcept {
  if (mailbox.is_valid()) nb::inst_ptr<MailboxHandle>(mailbox)->waits.erase(key);
  ticket.reset();
  // Taken out first: what they drop may come back to this object.
  const nb::object dropped[] = {std::move(mailbox), std::move(acquisition), std::move(signal),
                                std::move(waiting)};
}

nb::object wait_for_permit(InferenceScheduler& scheduler, const AcquireOptions& options,
                           const nb::object& acquisition) {
  Ticket ticket = scheduler.enqueue(options);
  nb::object signal;
  nb::object mailbox;
  // Only a program that imported trio can run in it, and then the loop is not always asyncio's.
  const nb::str trio("trio");
  const nb::object known = nb::steal(PyImport_GetModule(trio.ptr()));
  const nb::object loop = known.is_valid() ? nb::object() : running_loop();
  if (loop.is_valid()) mailbox = mailbox_of(loop);
  if (mailbox.is_valid()) {
    signal = loop.attr("create_future")();
  } else {
    PyErr_Clear();
    const nb::object hub = python("pronk._async", "current_hub")();
    mailbox = hub.attr("mailbox");
    signal = hub.attr("new_signal")();
  }
  nb::object object = nb::inst_alloc(nb::type<PermitWait>());
  PermitWait* self = new (nb::inst_ptr<PermitWait>(object)) PermitWait();
  nb::inst_mark_ready(object);
  self->waiting = signal.attr("__await__")();
  self->signal = std::move(signal);
  self->acquisition = acquisition;
  self->ticket = std::move(ticket);
  auto& handle = *nb::inst_ptr<MailboxHandle>(mailbox);
  self->key = ++handle.last_key;
  handle.waits.emplace(self->key, self);
  self->mailbox = std::move(mailbox);
  self->ticket->listen({handle.mailbox, self->key});
  return object;
}

void bind_permit_wait(nb::module_& m) {
  nb::class_<PermitWait>(m, "_PermitWait", nb::type_slots(slots), nb::pooled(),
                         "The wait of one task for one permit.")
      .def("throw", &throw_into, nb::sig("def throw(self, *error: typing.Any) -> typing.Any"))
      .def("close", &close);
}

}  // namespace pronk::bindings
