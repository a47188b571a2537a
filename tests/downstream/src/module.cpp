#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "errors.h"
#include "fleet.h"

namespace nb = nanobind;
using namespace nb::literals;

using ReleaseGil = nb::call_guard<nb::gil_scoped_release>;

namespace {

std::unique_ptr<pronk::InferenceScheduler> make_scheduler(
    std::int32_t max_concurrent, std::shared_ptr<pronk::InferenceEngine> engine) {
  pronk::SchedulerOptions options;
  options.max_concurrent = max_concurrent;
  auto scheduler = std::make_unique<pronk::InferenceScheduler>(options);
  scheduler->init_pool(std::move(engine));
  return scheduler;
}

}  // namespace

NB_MODULE(_native, m) {
  using namespace downstream;

  // Takes a scheduler by reference and keeps it alive.
  nb::class_<Fleet>(m, "Fleet")
      .def(nb::init<pronk::InferenceScheduler&, std::int32_t>(), "scheduler"_a, "n_threads"_a,
           nb::keep_alive<1, 2>())
      .def("run", &Fleet::run, "prompts"_a, "max_tokens"_a, ReleaseGil());

  // Each of pronk's objects goes through this module and comes out as pronk's Python class.
  m.def("acquire", [](pronk::InferenceScheduler& self) { return self.acquire(); }, ReleaseGil());
  m.def(
      "start",
      [](pronk::InferencePermit& permit, const std::string& prompt) {
        pronk::GenerationParams params;
        params.sampling.temperature = 0;
        params.max_tokens = 8;
        return permit.generate(prompt, params);
      },
      ReleaseGil());
  m.def("engine_of", &pronk::InferenceScheduler::engine);
  m.def("make_scheduler", &make_scheduler, ReleaseGil());

  m.def("raise_error", &raise_error);
  m.def("caught_in_cpp", &caught_in_cpp, ReleaseGil());
  m.def("nanobind_version",
        [] { return nb::make_tuple(NB_VERSION_MAJOR, NB_VERSION_MINOR, NB_VERSION_PATCH); });
}
