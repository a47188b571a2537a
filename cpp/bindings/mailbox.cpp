#include "mailbox.h"

#include <nanobind/stl/vector.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "acquisition.h"
#include "bindings.h"
#include "errors.h"
#include "imported.h"
#include "owner.h"
#include "signals.h"

namespace pronk::bindings {
namespace {

// The asyncio loops and the mailbox that each watches: one in most programs, so that a search is
// faster than a table. Neither is a reference: the mailbox removes itself. Guarded by the GIL.
std::vector<std::pair<PyObject*, PyObject*>> by_loop;

auto find_loop(PyObject* loop) {
  return std::find_if(by_loop.begin(), by_loop.end(),
                      [loop](const auto& each) { return each.first == loop; });
}

}  // namespace

std::uint64_t PermitWaits::add(Acquisition* wait) {
  if (free_.empty()) {
    places_.emplace_back();
    // So that remove() cannot fail.
    free_.reserve(places_.capacity());
    free_.push_back(static_cast<std::uint32_t>(places_.size() - 1));
  }
  const std::uint32_t number = free_.back();
  free_.pop_back();
  Place& place = places_[number];
  place.wait = wait;
  return kMark | std::uint64_t{place.uses} << 32 | number;
}

Acquisition* PermitWaits::find(std::uint64_t key) const noexcept {
  const auto number = static_cast<std::uint32_t>(key);
  if (!is_key(key) || number >= places_.size()) return nullptr;
  const Place& place = places_[number];
  return place.uses == static_cast<std::uint32_t>((key & ~kMark) >> 32) ? place.wait : nullptr;
}

void PermitWaits::remove(std::uint64_t key) noexcept {
  if (find(key) == nullptr) return;
  const auto number = static_cast<std::uint32_t>(key);
  places_[number].wait = nullptr;
  places_[number].uses = (places_[number].uses + 1) & 0x7fffffff;
  free_.push_back(number);
}

MailboxHandle::~MailboxHandle() { abandon(); }

void MailboxHandle::attach(nb::handle self, nb::handle asyncio_loop) {
  loop_ = asyncio_loop.ptr();
  by_loop.emplace_back(loop_, self.ptr());
}

void MailboxHandle::abandon() {
  std::erase_if(by_loop, [this](const auto& each) {
    return nb::inst_ptr<MailboxHandle>(each.second) == this;
  });
  loop_ = nullptr;
  for (std::size_t place = 0; place < waits.n_places(); ++place) {
    if (Acquisition* wait = waits.at(place)) wait->stop();  // which removes itself
  }
}

std::vector<std::uint64_t> MailboxHandle::deliver() {
  std::vector<std::uint64_t> others;
  // Taken out: whom it wakes may come back here.
  std::vector<std::uint64_t> keys = std::move(keys_);
  mailbox->drain(keys);
  std::exception_ptr raised;  // the first
  const auto guarded = [&](const auto& body) {
    try {
      body();
    } catch (nb::python_error& error) {
      if (raised) {
        error.discard_as_unraisable("pronk: waking a task that got its permit");
      } else {
        raised = std::current_exception();
      }
    }
  };
  for (const std::uint64_t key : keys) {
    if (!PermitWaits::is_key(key)) {
      others.push_back(key);
      continue;
    }
    // Within the loop's methods, a handler that raises would cost the task its wake-up.
    guarded([] { check_signals(); });
    if (Acquisition* wait = waits.find(key)) guarded([&] { wait->wake(); });
  }
  keys_ = std::move(keys);
  if (raised) {
    for (const std::uint64_t key : others) mailbox->post(key);
    mailbox->ring();
    std::rethrow_exception(raised);
  }
  return others;
}

nb::object running_loop() {
  static PyObject* known = nullptr;
  PyObject* function = imported(known, "asyncio.events", "_get_running_loop");
  if (function == nullptr) return {};  // no loop without asyncio
  nb::object loop = nb::steal(PyObject_CallNoArgs(function));
  if (!loop.is_valid()) throw nb::python_error();
  return loop.is_none() ? nb::object() : loop;
}

nb::object mailbox_of(nb::handle loop) {
  const auto it = find_loop(loop.ptr());
  return it == by_loop.end() ? nb::object() : nb::borrow(it->second);
}

LocalDelivery::LocalDelivery(nb::handle likely_loop) {
  if (by_loop.empty()) return;
  // A loop in the middle of a task's step looks at what is ready after it, so whoever woke in it
  // need not ask whether it is this thread's: before Python 3.12 that question is a system call.
  const bool in_step = likely_loop.is_valid() && is_in_step(likely_loop);
  const nb::object loop = in_step ? nb::borrow(likely_loop) : running_loop();
  if (!loop.is_valid()) return;
  mailbox_ = mailbox_of(loop);
  if (mailbox_.is_valid()) silence_.emplace(*nb::inst_ptr<MailboxHandle>(mailbox_)->mailbox);
}

void LocalDelivery::finish() {
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
