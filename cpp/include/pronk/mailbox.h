// The crossing from core threads to an event loop: a queue of keys and a file descriptor that
// becomes readable when there are some. No callback ever runs on a core thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "pronk/api.h"

namespace pronk::inline v0 {

/// An event loop owns one mailbox, watches fd() for reading and calls drain() when it is readable.
/// The descriptor is rung at most once between two drains, however many keys arrive. All functions
/// may be called from any thread.
class PRONK_API Mailbox {
 public:
  /// Throws BackendError when the process is out of file descriptors.
  Mailbox();
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  /// To watch for reading; never to be read from or closed.
  int fd() const noexcept;
  /// Adds a key without waking the loop; ring() does that, once for many posts.
  void post(std::uint64_t key);
  /// Makes fd() readable if there are keys.
  void ring() noexcept;
  /// The keys posted since the last call, oldest first; a key posted twice appears once.
  std::vector<std::uint64_t> drain();
  /// The same in the place of what `keys` has; its memory serves for the next keys.
  void drain(std::vector<std::uint64_t>& keys);

  /// While it lives, what its thread rings stays silent: for a thread that drains the mailbox
  /// itself right after. What is undrained at the end rings then.
  class PRONK_API Silence {
   public:
    explicit Silence(Mailbox& mailbox) noexcept;
    ~Silence();
    Silence(const Silence&) = delete;
    Silence& operator=(const Silence&) = delete;
    /// Whether there is something to drain that was rung in silence.
    bool rung() const noexcept { return rung_; }

   private:
    friend class Mailbox;
    Mailbox& mailbox_;
    Silence* const outer_;
    bool rung_ = false;
  };

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Where to tell that something became ready. Empty: nobody listens.
struct Listener {
  std::shared_ptr<Mailbox> mailbox;
  std::uint64_t key = 0;
};

}  // namespace pronk::inline v0
