// Who acquires: numbers that are never used again, for the detection of deadlocks.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

#include "pronk/scheduler.h"

namespace pronk::bindings {

/// Of what this thread acquires outside of tasks.
std::uint64_t thread_owner() noexcept;
/// Whether this thread ever asked for that number.
bool has_thread_owner() noexcept;

struct CurrentTask {
  std::uint64_t owner = 0;        ///< 0 outside of tasks
  nanobind::object asyncio_loop;  ///< that of an asyncio task; else empty
};

/// Of asyncio or trio. Needs the GIL.
CurrentTask current_task();
/// Whether a task of this asyncio loop is at work, if that can be told at little cost; else false.
/// Needs the GIL.
bool is_in_step(nanobind::handle asyncio_loop);
/// The owner of what is acquired here: the running task, or else the thread. Needs the GIL.
std::uint64_t current_owner();
/// Throws DeadlockError when who runs here holds every permit: the task, or the thread below its
/// loop, which gets to nothing before the loop ends. Needs the GIL.
void refuse_deadlock(const InferenceScheduler& scheduler, std::uint64_t task_owner);

}  // namespace pronk::bindings
