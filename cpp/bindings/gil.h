// Letting go of the GIL while something blocks, and getting it back without dying at interpreter
// exit.
#pragma once

#include <Python.h>

namespace pronk::bindings {

/// Releases the GIL for a scope. Use it instead of nb::gil_scoped_release: once the interpreter has
/// begun to go down, CPython before 3.14 ends a thread that asks for the GIL by unwinding its
/// stack, which C++ destructors turn into an abort. Here such a thread sleeps until the process
/// ends.
class DetachGil {
 public:
  DetachGil() noexcept : state_(PyEval_SaveThread()) {}
  ~DetachGil() {
    if (state_) attach();
  }
  DetachGil(const DetachGil&) = delete;
  DetachGil& operator=(const DetachGil&) = delete;

  /// Takes the GIL back before the end of the scope.
  void attach() noexcept;
  void detach() noexcept { state_ = PyEval_SaveThread(); }

 private:
  PyThreadState* state_;
};

/// Whether the calling thread is the one that runs Python's signal handlers. Needs no GIL.
bool is_main_thread() noexcept;

}  // namespace pronk::bindings
