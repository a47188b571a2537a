#include "log.h"

#include <nanobind/nanobind.h>

#include <string>

#include "bindings.h"
#include "pronk/log.h"

namespace pronk::bindings {
namespace {

nb::list drain() {
  nb::list lines;
  for (const LogLine& line : drain_log()) {
    lines.append(
        nb::make_tuple(static_cast<int>(line.level), nb::str(line.text.data(), line.text.size())));
  }
  return lines;
}

}  // namespace

LogScope::LogScope() { python("pronk._logging", "prepare")(); }

LogScope::~LogScope() {
  // An exception may be on its way to the caller already.
  nb::error_scope pending;
  try {
    python("pronk._logging", "flush")();
  } catch (nb::python_error& error) {
    if (error.matches(PyExc_KeyboardInterrupt)) {
      PyErr_SetInterrupt();  // a destructor cannot raise it: the next look for signals does
    } else {
      error.discard_as_unraisable("pronk: handing llama.cpp's log over");
    }
  } catch (const std::exception&) {
    // Out of memory: the lines are lost, the call is not.
  }
}

void bind_log(nb::module_& m) {
  m.def("drain_log", &drain, nb::sig("def drain_log() -> list[tuple[int, str]]"),
        "Return llama.cpp's log since the last call: (level, line), level 0 to 3 for debug to "
        "error.");
  m.def(
      "set_log_level", [](int level) { set_log_level(static_cast<LogLevel>(level)); },
      nb::arg("level"), "Keep no lines below this level.");
}

}  // namespace pronk::bindings
