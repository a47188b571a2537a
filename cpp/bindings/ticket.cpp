// A place in the queue, as the awaiting side of Python holds it.
#include <nanobind/nanobind.h>

#include "bindings.h"
#include "mailbox.h"
#include "pronk/scheduler.h"

namespace pronk::bindings {

void bind_ticket(nb::module_& m) {
  nb::class_<Ticket>(
      m, "Ticket",
      "A place in the waiting queue. Dropping it gives the place, or the permit it was "
      "granted, to the next in line.")
      .def_prop_ro(
          "waiting", [](const Ticket& self) { return self.status() == TicketStatus::kWaiting; },
          "Whether the ticket is still in the queue.")
      .def("take", &Ticket::take, "Return the permit of a granted ticket, once.")
      .def(
          "cancel", [](Ticket& self) { self.cancel(); },
          "Leave the queue; a permit already granted goes to the next.")
      .def(
          "listen",
          [](Ticket& self, const MailboxHandle& mailbox, std::uint64_t key) {
            self.listen({mailbox.mailbox, key});
          },
          nb::arg("mailbox"), nb::arg("key"),
          "Post ``key`` when the ticket stops waiting; at once if it already has.");
}

}  // namespace pronk::bindings
