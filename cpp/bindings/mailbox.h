// The mailbox of an event loop, as Python holds it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "pronk/mailbox.h"

namespace pronk::bindings {

namespace nb = nanobind;

struct PermitWait;

/// All of it but `mailbox` is guarded by the GIL.
struct MailboxHandle {
  MailboxHandle() = default;
  ~MailboxHandle();
  MailboxHandle(const MailboxHandle&) = delete;
  MailboxHandle& operator=(const MailboxHandle&) = delete;

  /// Says that the asyncio loop watches the mailbox of `self`, the Python object of this.
  void attach(nb::handle self, nb::handle asyncio_loop);
  /// That loop is gone: those who wait for permits give up their places.
  void abandon();
  /// Wakes those who wait for permits. Returns the keys of others.
  std::vector<std::uint64_t> deliver();

  /// Core threads keep the mailbox alive too, and must be able to drop it without the GIL: hence
  /// our own shared_ptr inside the Python object, instead of one to the Python object.
  const std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  /// By key; each removes itself.
  std::unordered_map<std::uint64_t, PermitWait*> waits;
  std::uint64_t last_key = 0;

 private:
  PyObject* loop_ = nullptr;  // not a reference: compared with the running loop, which lives
};

/// The asyncio loop that runs in this thread, or an empty handle. Needs the GIL.
nb::object running_loop();
/// The Python object of its mailbox, or an empty handle where it has none yet. Needs the GIL.
nb::object mailbox_of(nb::handle loop);

/// Around calls that hand permits on: tasks of the loop that runs in this thread are woken at the
/// end, without the way through the file descriptor. Needs the GIL at both ends.
class LocalDelivery {
 public:
  LocalDelivery();
  ~LocalDelivery();
  LocalDelivery(const LocalDelivery&) = delete;
  LocalDelivery& operator=(const LocalDelivery&) = delete;

 private:
  nb::object mailbox_;  // of the loop that runs here; or empty
  std::optional<Mailbox::Silence> silence_;
};

}  // namespace pronk::bindings
