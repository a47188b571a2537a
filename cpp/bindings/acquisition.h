// What acquire_async() returns: the wait of one task for one permit.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>

#include "mailbox.h"
#include "pronk/scheduler.h"

namespace pronk::bindings {

/// An awaitable, by itself or by `async with`: a coroutine written in C++. It takes its place in
/// the queue when it is awaited or entered, not before: one that is dropped unused costs nobody
/// anything. Where no permit is free it waits for a signal of the loop, an asyncio.Future or the
/// like, that is set when the ticket is decided. Whatever ends the wait early gives the place, or
/// the permit just granted, to the next in line. Guarded by the GIL.
struct Acquisition {
  enum class State : std::uint8_t {
    kNew,
    kUsed,     ///< awaited or entered, and has to try again for a place in the queue
    kBegun,    ///< has a permit or a place, and is to be awaited
    kAwaited,  ///< a task is in it
    kOver,
  };

  Acquisition(nb::object scheduler_in, std::int32_t priority_in)
      : scheduler(std::move(scheduler_in)), priority(priority_in) {}
  ~Acquisition() { stop(); }
  Acquisition(const Acquisition&) = delete;
  Acquisition& operator=(const Acquisition&) = delete;

  /// Takes a permit or a place in the queue. Throws what InferenceScheduler::enqueue() throws.
  void begin();
  /// The ticket was decided. Throws what the loop raises, or a signal handler that runs there.
  void wake();
  /// Gives the place up.
  void stop() noexcept;

  nb::object scheduler;
  const std::int32_t priority;
  State state = State::kNew;
  bool entered = false;      ///< by `async with`, which releases the permit
  nb::object permit;         ///< to be handed out, or what __aexit__ is to release
  nb::object loop;           ///< that of asyncio in which it was entered; or empty
  unsigned long thread = 0;  ///< of that loop
  std::optional<Ticket> ticket;
  nb::object mailbox;     ///< a MailboxHandle; empty while nobody waits
  std::uint64_t key = 0;  ///< in it
  nb::object signal;
  nb::object waiting;  ///< the iterator of `signal`
};

nb::object make_acquisition(nb::object scheduler, std::int32_t priority);

}  // namespace pronk::bindings
