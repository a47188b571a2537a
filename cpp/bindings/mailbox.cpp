#include "mailbox.h"

#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "errors.h"
#include "permit_wait.h"

namespace pronk::bindings {
namespace {

// The mailbox that each asyncio loop watches. Neither is a reference: the mailbox removes itself.
// Guarded by the GIL.
std::unordered_map<PyObject*, PyObject*> by_loop;

}  // namespace

MailboxHandle::~MailboxHandle() { abandon(); }

void MailboxHandle::attach(nb::handle self, nb::handle asyncio_loop) {
  loop_ = asyncio_loop.ptr();
  by_loop[loop_] = self.ptr();
}

void MailboxHandle::abandon() {
  const auto it = by_loop.find(loop_);
  if (it != by_loop.end() && nb::inst_ptr<MailboxHandle>(it->second) == this) by_loop.erase(it);
  loop_ = nullptr;
  while (!waits.empty()) waits.begin()->second->stop();  // which removes itself
}

std::vector<std::uint64_t> MailboxHandle::deliver() {
  std::vector<std::uint64_t> others;
  for (const std::uint64_t key : mailbox->drain()) {
    const auto it = waits.find(key);
    if (it == waits.end()) {
      others.push_back(key);
    } else {
      it->second->wake();
    }
  }
  return others;
}

nb::object running_loop() {
  // Kept for good: a function of the standard library, which holds nothing of ours.
  static PyObject* const function =
      nb::module_::import_("asyncio").attr("_get_running_loop").inc_ref().ptr();
  nb::object loop = nb::steal(PyObject_CallNoArgs(function));
  if (!loop.is_valid()) throw nb::python_error();
  return loop.is_none() ? nb::object() : loop;
}

nb::object mailbox_of(nb::handle loop) {
  const auto it = by_loop.find(loop.ptr());
  return it == by_loop.end() ? nb::object() : nb::borrow(it->second);
}

LocalDelivery::LocalDelivery() {
  if (by_loop.empty()) return;
  const nb::object loop = running_loop();
  if (!loop.is_valid()) return;
  mailbox_ = mailbox_of(loop);
  if (mailbox_.is_valid()) silence_.emplace(*nb::inst_ptr<MailboxHandle>(mailbox_)->mailbox);
}

LocalDelivery::~LocalDelivery() {
  if (!silence_ || !silence_->rung()) return;
  MailboxHandle& handle = *nb::inst_ptr<MailboxHandle>(mailbox_);
  // Others are told by the loop, as ever: the end of the silence rings for them.
  for (const std::uint64_t key : handle.deliver()) handle.mailbox->post(key);
}

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
          "new_key", [](MailboxHandle& self) { return ++self.last_key; },
          "Return a key that nobody has.")
      .def(
          "attach",
          [](nb::handle_t<MailboxHandle> self, nb::handle loop) {
            nb::cast<MailboxHandle&>(self).attach(self, loop);
          },
          nb::arg("asyncio_loop"), "Say which asyncio loop watches the descriptor.")
      .def("deliver", &MailboxHandle::deliver,
           "Wake the tasks whose permits have come. Return the other keys posted since the last "
           "call, oldest first, each once.")
      .def("abandon", &MailboxHandle::abandon,
           "The loop is gone: give up the places of its tasks.");
}

}  // namespace pronk::bindings
