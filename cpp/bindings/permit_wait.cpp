#include "permit_wait.h"

#include <utility>

#include "acquisition.h"
#include "bindings.h"
#include "errors.h"

namespace pronk::bindings {
namespace {

// Made once: these are called for every hand-over. Kept for good.
struct Names {
  PyObject* get_loop = PyUnicode_InternFromString("get_loop");
  PyObject* create_future = PyUnicode_InternFromString("create_future");
  PyObject* await = PyUnicode_InternFromString("__await__");
  PyObject* done = PyUnicode_InternFromString("done");
  PyObject* set_result = PyUnicode_InternFromString("set_result");
};

const Names& names() {
  static const Names names;
  return names;
}

nb::object call(nb::handle object, PyObject* name, nb::handle argument = nb::handle()) {
  PyObject* result = PyObject_CallMethodObjArgs(object.ptr(), name, argument.ptr(), nullptr);
  if (!result) throw nb::python_error();
  return nb::steal(result);
}

// Not a class of nanobind, which would enter every instance in a table.
struct Object {
  PyObject_HEAD PermitWait wait;
};

PyTypeObject* type = nullptr;  // set when the module is made, kept for good

PermitWait& wait_of(PyObject* self) { return reinterpret_cast<Object*>(self)->wait; }

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
  if (!wait_of(object).waiting.is_valid()) {
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

PyObject* throw_into(PyObject* object, PyObject* error) {
  PermitWait& self = wait_of(object);
  if (!self.waiting.is_valid()) {
    PyErr_SetString(PyExc_RuntimeError, "acquire_async: got a wait that is over");
    return nullptr;
  }
  const nb::object waiting = self.waiting;
  const nb::object method = nb::steal(PyObject_GetAttrString(waiting.ptr(), "throw"));
  if (!method.is_valid()) return nullptr;
  PyObject* yielded = PyObject_CallObject(method.ptr(), error);
  if (yielded) return yielded;  // it goes on waiting
  if (PyErr_ExceptionMatches(PyExc_StopIteration)) {
    PyErr_Clear();
    PyObject* permit = finish(self);
    return permit ? as_iteration(PYGEN_RETURN, permit) : nullptr;
  }
  self.stop();
  return nullptr;
}

PyObject* close(PyObject* object, PyObject*) {
  PermitWait& self = wait_of(object);
  const nb::object waiting = std::exchange(self.waiting, nb::object());
  self.stop();
  if (!waiting.is_valid()) Py_RETURN_NONE;
  const nb::object method = nb::steal(PyObject_GetAttrString(waiting.ptr(), "close"));
  return method.is_valid() ? PyObject_CallNoArgs(method.ptr()) : nullptr;
}

int traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  const PermitWait& self = wait_of(object);
  Py_VISIT(self.acquisition.ptr());
  Py_VISIT(self.mailbox.ptr());
  Py_VISIT(self.signal.ptr());
  Py_VISIT(self.waiting.ptr());
  return 0;
}

int clear(PyObject* object) {
  wait_of(object).stop();
  return 0;
}

void deallocate(PyObject* object) {
  PyObject_GC_UnTrack(object);
  PyTypeObject* own_type = Py_TYPE(object);
  wait_of(object).~PermitWait();
  PyObject_GC_Del(object);
  Py_DECREF(own_type);
}

PyMethodDef methods[] = {
    {"throw", &throw_into, METH_VARARGS, nullptr},
    {"close", &close, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_am_await, reinterpret_cast<void*>(&self_of)},
    {Py_am_send, reinterpret_cast<void*>(&send)},
    {Py_tp_iter, reinterpret_cast<void*>(&self_of)},
    {Py_tp_iternext, reinterpret_cast<void*>(&next)},
    {Py_tp_traverse, reinterpret_cast<void*>(&traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(&clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(&deallocate)},
    {Py_tp_methods, methods},
    {0, nullptr},
};

PyType_Spec spec = {"pronk._core._PermitWait", sizeof(Object), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                    slots};

}  // namespace

void PermitWait::wake() {
  const nb::object woken = signal;  // lives on whatever that does
  if (!woken.is_valid()) return;
  try {
    // One that is done was cancelled: its task is on its way to throw_into().
    if (!call(woken, names().done).is(nb::handle(Py_False))) return;
    call(woken, names().set_result, nb::none());
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
                           nb::handle asyncio_task, const nb::object& acquisition) {
  Ticket ticket = scheduler.enqueue(options);
  nb::object signal;
  nb::object mailbox;
  if (asyncio_task.is_valid()) {
    const nb::object loop = call(asyncio_task, names().get_loop);
    mailbox = mailbox_of(loop);
    if (mailbox.is_valid()) signal = call(loop, names().create_future);
  }
  if (!mailbox.is_valid()) {
    const nb::object hub = python("pronk._async", "current_hub")();
    mailbox = hub.attr("mailbox");
    signal = hub.attr("new_signal")();
  }
  PyObject* allocated = PyType_GenericAlloc(type, 0);
  if (!allocated) throw nb::python_error();
  nb::object object = nb::steal(allocated);
  PermitWait* self = new (&wait_of(allocated)) PermitWait();
  self->waiting = call(signal, names().await);
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

void bind_permit_wait() {
  if (type) return;
  type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (!type) throw nb::python_error();
}

}  // namespace pronk::bindings
