// Who acquires: numbers that are never used again, for the detection of deadlocks.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

namespace pronk::bindings {

std::uint64_t thread_owner() noexcept;

struct CurrentTask {
  std::uint64_t owner = 0;        ///< 0 outside of tasks
  nanobind::object asyncio_loop;  ///< that of an asyncio task; else empty
};

/// Of asyncio or trio. Needs the GIL.
CurrentTask current_task();

}  // namespace pronk::bindings
