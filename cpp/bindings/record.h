// Read-only records: repr and dict by a list of their fields.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "convert.h"

namespace pronk::bindings {

/// Adds __repr__ and asdict() over the fields named. `name` is the class as users write it.
template <class T>
void bind_record(nb::class_<T>& cls, const char* name, std::initializer_list<const char*> fields) {
  const std::vector<const char*> list(fields);
  cls.def("__repr__", [name, list](nb::handle_t<T> self) {
    std::string text = std::string("pronk.") + name + "(";
    for (const char* field : list) {
      if (field != list.front()) text += ", ";
      text += std::string(field) + "=" + repr_of(self.attr(field));
    }
    return text + ")";
  });
  cls.def(
      "asdict",
      [list](nb::handle_t<T> self) {
        nb::dict result;
        for (const char* field : list) result[field] = self.attr(field);
        return result;
      },
      nb::sig("def asdict(self) -> dict[str, typing.Any]"), "Return the fields as a new dict.");
}

}  // namespace pronk::bindings
