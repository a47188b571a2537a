// Who acquires: numbers that are never used again, for the detection of deadlocks.
#pragma once

#include <cstdint>

namespace pronk::bindings {

std::uint64_t thread_owner() noexcept;
/// Of the running asyncio task; 0 where there is none. Needs the GIL.
std::uint64_t task_owner();

}  // namespace pronk::bindings
