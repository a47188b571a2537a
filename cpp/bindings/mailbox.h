// The mailbox of an event loop, as Python holds it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "pronk/mailbox.h"

namespace pronk::bindings {

namespace nb = nanobind;

struct Acquisition;

/// Those who wait, by key. Guarded by the GIL.
class PermitWaits {
 public:
  /// The key is like none of the last two thousand million of its place.
  std::uint64_t add(Acquisition* wait);
  void remove(std::uint64_t key) noexcept;
  /// Whether it is the key of one who waits or waited, not somebody else's.
  static bool is_key(std::uint64_t key) noexcept { return (key & kMark) != 0; }
  /// Null where nobody waits under the key any more.
  Acquisition* find(std::uint64_t key) const noexcept;
  /// For a visit to all: null where nobody waits.
  std::size_t n_places() const noexcept { return places_.size(); }
  Acquisition* at(std::size_t place) const noexcept { return places_[place].wait; }

 private:
  // A key is the number of a place, how often that was used before, and this mark.
  static constexpr std::uint64_t kMark = std::uint64_t{1} << 63;
  struct Place {
    Acquisition* wait = nullptr;
    std::uint32_t uses = 0;  // modulo 2^31
  };

  std::vector<Place> places_;
  std::vector<std::uint32_t> free_;
};

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
  /// Wakes those who wait for permits. Returns the keys of others. What is raised meanwhile, by
  /// signal handlers for example, is thrown at the end, when all are woken; the others' keys then
  /// stay.
  std::vector<std::uint64_t> deliver();

  /// Core threads keep the mailbox alive too, and must be able to drop it without the GIL: hence
  /// our own shared_ptr inside the Python object, instead of one to the Python object.
  const std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  PermitWaits waits;  ///< each removes itself
  std::uint64_t last_key = 0;

 private:
  std::vector<std::uint64_t> keys_;  // kept for their memory
  PyObject* loop_ = nullptr;         // not a reference: compared with the running loop, which lives
};

/// The asyncio loop that runs in this thread, or an empty handle. Needs the GIL.
nb::object running_loop();
/// The Python object of its mailbox, or an empty handle where it has none yet. Needs the GIL.
nb::object mailbox_of(nb::handle loop);

/// Around calls that hand permits on: finish() wakes tasks of the loop that runs in this thread,
/// without the way through the file descriptor. Needs the GIL at both ends.
class LocalDelivery {
 public:
  LocalDelivery() : LocalDelivery(nb::handle()) {}
  /// `likely_loop` is the asyncio loop that most likely runs here; or empty.
  explicit LocalDelivery(nb::handle likely_loop);
  LocalDelivery(const LocalDelivery&) = delete;
  LocalDelivery& operator=(const LocalDelivery&) = delete;

  /// Throws as MailboxHandle::deliver() does.
  void finish();

 private:
  nb::object mailbox_;  // of the loop that runs here; or empty
  std::optional<Mailbox::Silence> silence_;
};

}  // namespace pronk::bindings
