#include "ready.h"

#include <utility>

#include "bindings.h"

namespace pronk::bindings {
namespace {

// Not classes of nanobind, which would enter every instance in a table: one is made for each
// uncontended `async with`, and for each piece of text that is there already.

struct Ready {
  PyObject_HEAD PyObject* value;  // null: taken, or the end of an iteration
};

PyTypeObject* ready_type = nullptr;  // set when the module is made, kept for good

Ready* ready_of(PyObject* self) { return reinterpret_cast<Ready*>(self); }

PyObject* self_of(PyObject* self) {
  Py_INCREF(self);
  return self;
}

PySendResult send(PyObject* self, PyObject*, PyObject** result) {
  *result = std::exchange(ready_of(self)->value, nullptr);
  if (*result) return PYGEN_RETURN;
  PyErr_SetNone(PyExc_StopAsyncIteration);
  return PYGEN_ERROR;
}

PyObject* next(PyObject* self) {
  PyObject* result = nullptr;
  if (send(self, nullptr, &result) == PYGEN_RETURN) {
    const nb::object value = nb::steal(result);
    const nb::object stop =
        nb::steal(PyObject_CallFunctionObjArgs(PyExc_StopIteration, result, nullptr));
    if (stop.is_valid()) PyErr_SetObject(PyExc_StopIteration, stop.ptr());
  }
  return nullptr;
}

void deallocate(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  Py_XDECREF(ready_of(self)->value);
  PyObject_Free(self);
  Py_DECREF(type);
}

PyType_Slot slots[] = {
    {Py_am_await, reinterpret_cast<void*>(&self_of)},
    {Py_am_send, reinterpret_cast<void*>(&send)},
    {Py_tp_iter, reinterpret_cast<void*>(&self_of)},
    {Py_tp_iternext, reinterpret_cast<void*>(&next)},
    {Py_tp_dealloc, reinterpret_cast<void*>(&deallocate)},
    {0, nullptr},
};

// It holds what refers to nothing: strings, permits, completions. So it takes no part in garbage
// collection.
PyType_Spec spec = {"pronk._core._Ready", sizeof(Ready), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

PySendResult send_none(PyObject*, PyObject*, PyObject** result) {
  Py_INCREF(Py_None);
  *result = Py_None;
  return PYGEN_RETURN;
}

PyObject* next_none(PyObject*) { return nullptr; }

PyType_Slot none_slots[] = {
    {Py_am_await, reinterpret_cast<void*>(&self_of)},
    {Py_am_send, reinterpret_cast<void*>(&send_none)},
    {Py_tp_iter, reinterpret_cast<void*>(&self_of)},
    {Py_tp_iternext, reinterpret_cast<void*>(&next_none)},
    {0, nullptr},
};

PyType_Spec none_spec = {"pronk._core._ReadyNone", sizeof(PyObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, none_slots};

PyObject* the_none = nullptr;  // set when the module is made, kept for good

PyObject* checked(PyObject* object) {
  if (!object) throw nb::python_error();
  return object;
}

nb::object make(PyObject* value) {
  PyObject* self = checked(PyType_GenericAlloc(ready_type, 0));
  ready_of(self)->value = value;
  return nb::steal(self);
}

PyTypeObject* make_type(PyType_Spec& from) {
  return reinterpret_cast<PyTypeObject*>(checked(PyType_FromSpec(&from)));
}

}  // namespace

nb::object ready(nb::object value) { return make(value.release().ptr()); }

nb::object ready_end() { return make(nullptr); }

nb::object ready_none() { return nb::borrow(the_none); }

void bind_ready() {
  if (ready_type) return;
  ready_type = make_type(spec);
  the_none = checked(PyType_GenericAlloc(make_type(none_spec), 0));
}

}  // namespace pronk::bindings
