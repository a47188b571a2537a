// What acquire_async() returns.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

namespace pronk::bindings {

/// Takes its place in the queue when it is awaited or entered, not before: one that is dropped
/// unused costs nobody anything.
struct Acquisition {
  nanobind::object scheduler;
  std::int32_t priority = 0;
  bool used = false;
  bool entered = false;     ///< by `async with`, which releases the permit
  nanobind::object permit;  ///< what __aexit__ is to release
};

}  // namespace pronk::bindings
