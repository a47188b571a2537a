#include "acquisition.h"

#include <utility>

#include "bindings.h"
#include "convert.h"
#include "errors.h"
#include "imported.h"
#include "owner.h"
#include "pronk/error.h"
#include "ready.h"
#include "release.h"

namespace pronk::bindings {
namespace {

using State = Acquisition::State;

// Made once: these are called for every hand-over. Kept for good.
struct Names {
  PyObject* create_future = PyUnicode_InternFromString("create_future");
  PyObject* await = PyUnicode_InternFromString("__await__");
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

// What awaiting a future iterates over.
nb::object iterator_of(nb::handle future) {
  // That of asyncio's own is the same, and found without the search for a method.
  PyObject* iterator = PyObject_GetIter(future.ptr());
  if (iterator) return nb::steal(iterator);
  PyErr_Clear();
  return call(future, names().await);
}

// Not a class of nanobind, which would enter every instance in a table and dispatch every call: one
// is made for each `async with`.
struct Object {
  PyObject_HEAD Acquisition acquisition;
};

PyTypeObject* type = nullptr;  // set when the module is made, kept for good

Acquisition& of(PyObject* self) { return reinterpret_cast<Object*>(self)->acquisition; }

PyObject* new_reference(PyObject* self) {
  Py_INCREF(self);
  return self;
}

// Runs `body` and leaves its exception to Python.
template <typename Body>
PyObject* guarded(const Body& body) {
  try {
    return body();
  } catch (...) {
    set_error_from_current_exception();
    return nullptr;
  }
}

void use(Acquisition& self, bool entered) {
  if (self.state != State::kNew) {
    PyErr_SetString(
        PyExc_RuntimeError,
        "acquire_async: got a second use of one result, expected one await or async with, "
        "call acquire_async() again");
    throw nb::python_error();
  }
  self.state = State::kUsed;
  self.entered = entered;
}

// Begins; an awaitable of the permit.
nb::object begin_or_retry(PyObject* object, Acquisition& self) {
  try {
    self.begin();
    return nb::borrow(object);
  } catch (const DeadlockError&) {
    return python("pronk._async", "queue_some_turns")(nb::handle(object));
  }
}

PyObject* await(PyObject* object) {
  return guarded([&] {
    Acquisition& self = of(object);
    if (self.state == State::kBegun) {
      self.state = State::kAwaited;
      return new_reference(object);
    }
    use(self, false);
    nb::object awaitable = begin_or_retry(object, self);
    if (!awaitable.is(nb::handle(object))) awaitable = awaitable.attr("__await__")();
    if (self.state == State::kBegun) self.state = State::kAwaited;
    return awaitable.release().ptr();
  });
}

PyObject* enter(PyObject* object, PyObject*) {
  return guarded([&] {
    Acquisition& self = of(object);
    use(self, true);
    return begin_or_retry(object, self).release().ptr();
  });
}

PyObject* leave(PyObject* object, PyObject* const*, Py_ssize_t n_args) {
  if (n_args != 3) {
    PyErr_Format(PyExc_TypeError, "__aexit__: got %zd arguments, expected 3", n_args);
    return nullptr;
  }
  return guarded([&] {
    Acquisition& self = of(object);
    // Who leaves before there was a permit to leave with gives up waiting for it.
    if (self.state != State::kOver) self.stop();
    const nb::object permit = std::exchange(self.permit, nb::object());
    const nb::object loop = std::exchange(self.loop, nb::object());
    const bool is_here = self.thread == PyThread_get_thread_ident();
    if (permit.is_valid()) {
      release_in(is_here ? nb::handle(loop) : nb::handle(), *nb::inst_ptr<InferencePermit>(permit));
    }
    return ready_none().release().ptr();
  });
}

// Hands the permit out.
PyObject* finish(Acquisition& self) {
  self.state = State::kOver;
  return self.entered ? new_reference(self.permit.ptr()) : self.permit.release().ptr();
}

bool check_awaited(Acquisition& self) {
  if (self.state == State::kBegun) self.state = State::kAwaited;
  if (self.state == State::kAwaited) return true;
  PyErr_SetString(PyExc_RuntimeError, "acquire_async: got a wait that is over");
  return false;
}

// The wait is over, as far as the loop is concerned.
PyObject* take(Acquisition& self) {
  // What ran meanwhile may have ended it.
  if (!check_awaited(self)) return nullptr;
  PyObject* permit = guarded([&] {
    self.permit = nb::cast(self.ticket->take());
    return finish(self);
  });
  self.stop();
  return permit;
}

PySendResult send(PyObject* object, PyObject* value, PyObject** result) {
  *result = nullptr;
  Acquisition& self = of(object);
  if (!check_awaited(self)) return PYGEN_ERROR;
  if (self.permit.is_valid()) {
    *result = finish(self);
    return PYGEN_RETURN;
  }
  const nb::object waiting = self.waiting;  // lives on whatever happens in there
  PyObject* yielded = nullptr;
  switch (PyIter_Send(waiting.ptr(), value, &yielded)) {
    case PYGEN_NEXT:
      *result = yielded;
      return PYGEN_NEXT;
    case PYGEN_RETURN:
      Py_DECREF(yielded);
      *result = take(self);
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
  Acquisition& self = of(object);
  if (!check_awaited(self)) return nullptr;
  if (!self.waiting.is_valid()) {
    PyErr_SetString(PyExc_RuntimeError, "acquire_async: got an error before the wait began");
    self.stop();
    return nullptr;
  }
  const nb::object waiting = self.waiting;
  const nb::object method = nb::steal(PyObject_GetAttrString(waiting.ptr(), "throw"));
  if (!method.is_valid()) return nullptr;
  PyObject* yielded = PyObject_CallObject(method.ptr(), error);
  if (yielded) return yielded;  // it goes on waiting
  if (PyErr_ExceptionMatches(PyExc_StopIteration)) {
    PyErr_Clear();
    PyObject* permit = take(self);
    return permit ? as_iteration(PYGEN_RETURN, permit) : nullptr;
  }
  self.stop();
  return nullptr;
}

PyObject* close(PyObject* object, PyObject*) {
  Acquisition& self = of(object);
  if (self.state != State::kBegun && self.state != State::kAwaited) Py_RETURN_NONE;
  const nb::object waiting = std::exchange(self.waiting, nb::object());
  self.stop();
  if (!waiting.is_valid()) Py_RETURN_NONE;
  const nb::object method = nb::steal(PyObject_GetAttrString(waiting.ptr(), "close"));
  return method.is_valid() ? PyObject_CallNoArgs(method.ptr()) : nullptr;
}

int traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  const Acquisition& self = of(object);
  Py_VISIT(self.scheduler.ptr());
  Py_VISIT(self.permit.ptr());
  Py_VISIT(self.loop.ptr());
  Py_VISIT(self.mailbox.ptr());
  Py_VISIT(self.signal.ptr());
  Py_VISIT(self.waiting.ptr());
  return 0;
}

int clear(PyObject* object) {
  Acquisition& self = of(object);
  self.stop();
  const nb::object dropped[] = {std::move(self.scheduler), std::move(self.permit),
                                std::move(self.loop)};
  return 0;
}

void deallocate(PyObject* object) {
  PyObject_GC_UnTrack(object);
  PyTypeObject* own_type = Py_TYPE(object);
  of(object).~Acquisition();
  PyObject_GC_Del(object);
  Py_DECREF(own_type);
}

PyMethodDef methods[] = {
    {"__aenter__", &enter, METH_NOARGS, nullptr},
    {"__aexit__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&leave)),
     METH_FASTCALL, nullptr},
    {"throw", &throw_into, METH_VARARGS, "Raise an exception where the task waits."},
    {"close", &close, METH_NOARGS, "End the wait. The place, or the permit, goes to the next."},
    {nullptr, nullptr, 0, nullptr},
};

constexpr char kDoc[] =
    "A permit to come: await it for the permit, or use it in ``async with``, which also gives the "
    "permit back. Once.\n\n"
    "Example:\n"
    "    >>> permit = await scheduler.acquire_async()";

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>(kDoc)},
    {Py_am_await, reinterpret_cast<void*>(&await)},
    {Py_am_send, reinterpret_cast<void*>(&send)},
    {Py_tp_iter, reinterpret_cast<void*>(&new_reference)},
    {Py_tp_iternext, reinterpret_cast<void*>(&next)},
    {Py_tp_traverse, reinterpret_cast<void*>(&traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(&clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(&deallocate)},
    {Py_tp_methods, methods},
    {0, nullptr},
};

PyType_Spec spec = {"pronk._core.Acquisition", sizeof(Object), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                    slots};

// For pronk._async.
nb::object queue(nb::handle acquisition) {
  if (Py_TYPE(acquisition.ptr()) != type) {
    throw_invalid_type({"acquisition", "pass what acquire_async() returns"}, acquisition,
                       "an Acquisition");
  }
  of(acquisition.ptr()).begin();
  return nb::borrow(acquisition);
}

}  // namespace

void Acquisition::begin() {
  auto& gate = *nb::inst_ptr<InferenceScheduler>(scheduler);
  const CurrentTask task = current_task();
  if (entered) {
    loop = task.asyncio_loop;
    thread = PyThread_get_thread_ident();
  }
  const AcquireOptions options{priority, task.owner};
  if (std::optional<InferencePermit> free = gate.try_acquire(options)) {
    permit = nb::cast(std::move(*free));
    state = State::kBegun;
    return;
  }
  if (has_thread_owner()) gate.check_deadlock(thread_owner());
  nb::object mailbox_here;
  if (task.asyncio_loop.is_valid()) {
    mailbox_here = mailbox_of(task.asyncio_loop);
    if (mailbox_here.is_valid()) signal = call(task.asyncio_loop, names().create_future);
  }
  if (!mailbox_here.is_valid()) {
    const nb::object hub = python("pronk._async", "current_hub")();
    mailbox_here = hub.attr("mailbox");
    signal = hub.attr("new_signal")();
  }
  waiting = task.asyncio_loop.is_valid() ? iterator_of(signal) : call(signal, names().await);
  auto& handle = *nb::inst_ptr<MailboxHandle>(mailbox_here);
  key = handle.waits.add(this);
  mailbox = std::move(mailbox_here);
  try {
    // Last: nobody wakes what is not there yet.
    ticket = gate.enqueue(options, {handle.mailbox, key});
  } catch (...) {
    const nb::object unused = std::move(waiting);
    stop();
    // A coroutine that is dropped before it began warns of that.
    if (nb::hasattr(unused, "close")) unused.attr("close")();
    throw;
  }
  state = State::kBegun;
}

void Acquisition::wake() {
  const nb::object woken = signal;  // lives on whatever that does
  if (!woken.is_valid()) return;
  try {
    call(woken, names().set_result, nb::none());
  } catch (nb::python_error& error) {
    static PyObject* known = nullptr;
    PyObject* is_done = imported(known, "asyncio.exceptions", "InvalidStateError");
    // One that is done was cancelled: its task is on its way to throw_into().
    if (is_done == nullptr || !error.matches(is_done)) throw;
  }
}

void Acquisition::stop() noexcept {
  if (state == State::kBegun || state == State::kAwaited) {
    state = State::kOver;
    const nb::object unused = std::move(permit);  // which gives it back
  }
  if (mailbox.is_valid()) nb::inst_ptr<MailboxHandle>(mailbox)->waits.remove(key);
  ticket.reset();
  // Taken out first: what they drop may come back to this object.
  const nb::object dropped[] = {std::move(mailbox), std::move(signal), std::move(waiting)};
}

nb::object make_acquisition(nb::object scheduler, std::int32_t priority) {
  PyObject* object = PyType_GenericAlloc(type, 0);
  if (!object) throw nb::python_error();
  new (&of(object)) Acquisition(std::move(scheduler), priority);
  return nb::steal(object);
}

void bind_acquisition(nb::module_& m) {
  if (!type) {
    type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    if (!type) throw nb::python_error();
  }
  m.attr("Acquisition") = nb::handle(reinterpret_cast<PyObject*>(type));
  m.def("queue", &queue, nb::arg("acquisition"),
        nb::sig("def queue(acquisition: Acquisition) -> "
                "collections.abc.Awaitable[InferencePermit]"),
        "Take a permit or a place in the queue; return an awaitable of the permit.");
  // For pronk._agent_run.
  m.def(
      "check_deadlock",
      [](const InferenceScheduler& scheduler) { refuse_deadlock(scheduler, current_task().owner); },
      nb::arg("scheduler"),
      "Raise DeadlockError when the running task, or the thread below it, holds every permit.");
}

}  // namespace pronk::bindings
