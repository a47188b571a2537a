// The wait of one task for one permit that is not free.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>

#include "mailbox.h"
#include "pronk/scheduler.h"

namespace pronk::bindings {

struct Acquisition;

/// An awaitable: a coroutine written in C++. It waits for a signal of the loop, an asyncio.Future
/// or the like, that is set when the ticket is decided. Whatever ends the wait early gives the
/// place, or the permit just granted, to the next in line.
struct PermitWait {
  PermitWait() = default;
  ~PermitWait() { stop(); }
  PermitWait(PermitWait&& other) noexcept = delete;

  /// The ticket was decided. Errors of the loop are reported as unraisable.
  void wake();
  /// Gives up.
  void stop() noexcept;

  std::optional<Ticket> ticket;
  nb::object acquisition;  ///< an `async with` that is to release the permit; or empty
  nb::object mailbox;      ///< a MailboxHandle; empty once nobody waits
  std::uint64_t key = 0;
  nb::object signal;
  nb::object waiting;  ///< the iterator of `signal`
};

/// Queues for a permit, on behalf of `asyncio_task` if that is what runs. Throws as
/// InferenceScheduler::enqueue() does.
nb::object wait_for_permit(InferenceScheduler& scheduler, const AcquireOptions& options,
                           nb::handle asyncio_task, const nb::object& acquisition);

}  // namespace pronk::bindings
