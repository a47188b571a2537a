// What other modules have, if the program has imported them.
#pragma once

#include <nanobind/nanobind.h>

namespace pronk::bindings {

/// Looks an attribute of `module` up once and keeps it in `known` for good. Null as long as nobody
/// has imported the module: it is not imported for the question. Needs the GIL, which guards
/// `known` too. A static of the caller with an initialiser would be guarded by a lock of C++
/// instead, for which other threads would wait with the GIL, while an import under it gives the GIL
/// away.
inline PyObject* imported(PyObject*& known, const char* module, const char* name) {
  if (known != nullptr) return known;
  const auto key = nanobind::steal(PyUnicode_FromString(module));
  const auto found = nanobind::steal(PyImport_GetModule(key.ptr()));
  auto attribute = found.is_valid() ? nanobind::steal(PyObject_GetAttrString(found.ptr(), name))
                                    : nanobind::object();
  PyErr_Clear();
  if (known == nullptr) known = attribute.release().ptr();
  return known;
}

}  // namespace pronk::bindings
