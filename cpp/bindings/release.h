// Permits given back by Python code.
#pragma once

#include "mailbox.h"
#include "pronk/permit.h"

namespace pronk::bindings {

/// Gives the permit back; a task of the loop that runs here, if it is the next in line, is woken at
/// once. Throws what is raised meanwhile, with the permit given back. Needs the GIL.
inline void release(InferencePermit& permit) {
  LocalDelivery delivery;
  permit.release();
  delivery.finish();
}

/// The same where `asyncio_loop`, if not empty, is most likely the loop that runs here.
inline void release_in(nb::handle asyncio_loop, InferencePermit& permit) {
  LocalDelivery delivery(asyncio_loop);
  permit.release();
  delivery.finish();
}

}  // namespace pronk::bindings
