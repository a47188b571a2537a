// The Python face: conversions, the GIL, Ctrl-C.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "agents.h"

namespace nb = nanobind;

namespace {

std::vector<pronk::Completion> run_agents(pronk::InferenceScheduler& scheduler,
                                          const std::vector<std::string>& tasks, std::int32_t turns,
                                          std::int32_t max_tokens) {
  const auto look_up = [] {
    const nb::gil_scoped_acquire gil;
    // Throws what the handler raised: KeyboardInterrupt, usually.
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  };
  return agents::run(scheduler, tasks, turns, max_tokens, look_up);
}

}  // namespace

NB_MODULE(_agents, m) {
  // Without the GIL, other Python threads run meanwhile. pronk itself never needs it.
  m.def("run_agents", &run_agents, nb::call_guard<nb::gil_scoped_release>());
}
