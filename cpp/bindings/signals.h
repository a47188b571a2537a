// Blocking in C++ so that other threads run on and Ctrl-C still works.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>

#include "gil.h"

namespace pronk::bindings {

using Nanoseconds = std::chrono::nanoseconds;

/// Only the main thread handles signals, so only it looks up from its wait.
inline constexpr Nanoseconds kSignalSlice = std::chrono::milliseconds(50);
/// For ever, but small enough to be added to a time.
inline constexpr Nanoseconds kLongWait = std::chrono::hours(24 * 365);

/// Runs pending signal handlers; throws what they raise. Needs the GIL.
inline void check_signals() {
  if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
}

/// A function for the waits of the core, which calls it now and then: runs pending signal handlers
/// in the midst of a scope without the GIL. Empty on other threads than the main one.
inline std::function<void()> look_up_signals(DetachGil& detached) {
  if (!is_main_thread()) return {};
  return [&detached] {
    detached.attach();
    check_signals();
    detached.detach();
  };
}

/// Calls `wait(at_most, slice)` without the GIL until it returns true: `at_most` on the clock that
/// `age()` reads, `slice` in real time. Returns false when `timeout` is over on that clock (none:
/// never).
template <class Age, class Wait>
bool wait_with_signals(std::optional<Nanoseconds> timeout, Age&& age, Wait&& wait) {
  const bool main_thread = is_main_thread();
  const Nanoseconds slice = main_thread ? kSignalSlice : kLongWait;
  const Nanoseconds start = age();
  for (;;) {
    const Nanoseconds at_most =
        timeout ? std::max(*timeout - (age() - start), Nanoseconds(0)) : kLongWait;
    bool done = false;
    {
      DetachGil detached;
      done = wait(at_most, slice);
    }
    if (done) return true;
    if (main_thread) check_signals();
    if (timeout && age() - start >= *timeout) return false;
  }
}

}  // namespace pronk::bindings
