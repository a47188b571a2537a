#include "ready.h"

#include <utility>

#include "bindings.h"

namespace pronk::bindings {
namespace {

struct Ready {
  nb::object value;  // not valid: the end of an iteration
};

PyObject* self_of(PyObject* self) {
  Py_INCREF(self);
  return self;
}

PySendResult send(PyObject* self, PyObject*, PyObject** result) {
  *result = nullptr;
  if (!nb::inst_ready(self)) {  // made by __new__ alone
    PyErr_SetString(PyExc_TypeError, "awaitable: got one that was never initialised");
    return PYGEN_ERROR;
  }
  Ready& ready = *nb::inst_ptr<Ready>(self);
  if (!ready.value.is_valid()) {
    PyErr_SetNone(PyExc_StopAsyncIteration);
    return PYGEN_ERROR;
  }
  *result = ready.value.release().ptr();
  return PYGEN_RETURN;
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

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<Ready>(self)->value.ptr());
  return 0;
}

int clear(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<Ready>(self)->value.reset();
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

nb::object ready(nb::object value) { return nb::cast(Ready{std::move(value)}); }

nb::object ready_end() { return nb::cast(Ready{}); }

void bind_ready(nb::module_& m) {
  nb::class_<Ready>(m, "_Ready", nb::type_slots(slots), nb::pooled(),
                    "An awaitable whose result is there already.");
}

}  // namespace pronk::bindings
