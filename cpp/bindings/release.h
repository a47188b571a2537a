// Permits given back by Python code.
#pragma once

#include "mailbox.h"
#include "pronk/permit.h"

namespace pronk::bindings {

/// Gives the permit back; a task of the loop that runs here, if it is the next in line, is woken at
/// once. Needs the GIL.
inline void release(InferencePermit& permit) {
  const LocalDelivery delivery;
  permit.release();
}

/// The same where `asyncio_loop`, if not empty, is most likely the loop that runs here.
inline void release_in(nb::handle asyncio_loop, InferencePermit& permit) {
  const LocalDelivery delivery(asyncio_loop);
  permit.release();
}

}  // namespace pronk::bindings
