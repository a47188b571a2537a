// An awaitable that has its result already: awaiting it never goes through the event loop.
#pragma once

#include <nanobind/nanobind.h>

namespace pronk::bindings {

namespace nb = nanobind;

/// Awaiting gives `value`.
nb::object ready(nb::object value);
/// Awaiting gives None, any number of times. Always the same object.
nb::object ready_none();
/// Awaiting raises StopAsyncIteration: the end of an `async for`.
nb::object ready_end();

}  // namespace pronk::bindings
