// Errors on their way to Python.
#pragma once

#include <nanobind/nanobind.h>

#include <stdexcept>
#include <string>

#include "pronk/error.h"

namespace pronk::bindings {

namespace nb = nanobind;

/// A value of the wrong Python type. Exists at this boundary only: C++ callers have a compiler.
class InvalidTypeError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Generation.result() ran into its timeout; the generation goes on.
class ResultTimeout : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Sets the Python error that belongs to the exception being handled. For functions that Python
/// calls directly through a type slot, where nanobind does not translate.
void set_error_from_current_exception() noexcept;

/// Throws the Python class of `error` with the name of the file that could not be loaded.
[[noreturn]] void raise_model_load_error(const ModelLoadError& error, nb::handle filename);

/// Throws the Python GenerationCancelled with what there was of the generation.
[[noreturn]] void raise_cancelled(const GenerationCancelled& error, const nb::object& completion);

}  // namespace pronk::bindings
