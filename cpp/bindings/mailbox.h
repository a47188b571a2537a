// The mailbox of an event loop, as Python holds it.
#pragma once

#include <memory>

#include "pronk/mailbox.h"

namespace pronk::bindings {

/// Core threads keep the mailbox alive too, and must be able to drop it without the GIL: hence our
/// own shared_ptr inside the Python object, instead of one to the Python object.
struct MailboxHandle {
  std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
};

}  // namespace pronk::bindings
