#include "mailbox.h"

#include <nanobind/stl/vector.h>

#include "bindings.h"

namespace pronk::bindings {

void bind_mailbox(nb::module_& m) {
  nb::class_<MailboxHandle>(
      m, "Mailbox",
      "The crossing from core threads to one event loop: a queue of keys and a file "
      "descriptor that becomes readable when there are some.")
      .def(nb::init<>())
      .def_prop_ro(
          "fd", [](const MailboxHandle& self) { return self.mailbox->fd(); },
          "The descriptor to watch for reading.")
      .def(
          "drain", [](const MailboxHandle& self) { return self.mailbox->drain(); },
          "Return the keys posted since the last call, oldest first, each once.");
}

}  // namespace pronk::bindings
