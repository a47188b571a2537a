// What every file of the glue shares: one function per concept, called by module.cpp.
#pragma once

#include <nanobind/nanobind.h>

namespace pronk::bindings {

namespace nb = nanobind;

void bind_errors(nb::module_& m);
void bind_build_info(nb::module_& m);
void bind_log(nb::module_& m);
void bind_exit(nb::module_& m);
void bind_engine(nb::module_& m);
void bind_statistics(nb::module_& m);
void bind_chat(nb::module_& m);
void bind_completion(nb::module_& m);
void bind_mailbox(nb::module_& m);
void bind_ready();
void bind_generation(nb::module_& m);
void bind_permit(nb::module_& m);
void bind_acquisition(nb::module_& m);
void bind_scheduler(nb::module_& m);
void bind_testing(nb::module_& m);

/// A function of our Python layer. Looked up at each use: a reference kept in C++ would outlive the
/// interpreter.
nb::object python(const char* module, const char* name);

}  // namespace pronk::bindings
