// The mailbox: keys arrive once and in order, and the descriptor is readable exactly while there is
// something to fetch.
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "check.h"
#include "pronk/mailbox.h"

namespace {

using pronk::Mailbox;
using Keys = std::vector<std::uint64_t>;

bool readable(const Mailbox& mailbox, int timeout_ms = 0) {
  pollfd fd{mailbox.fd(), POLLIN, 0};
  return poll(&fd, 1, timeout_ms) == 1;
}

}  // namespace

TEST(mailbox_keeps_order_and_drops_repeats) {
  Mailbox mailbox;
  CHECK_EQ(mailbox.drain(), Keys{});
  for (const std::uint64_t key : {3, 1, 3, 2, 1}) mailbox.post(key);
  CHECK_EQ(mailbox.drain(), (Keys{3, 1, 2}));
  mailbox.post(3);
  CHECK_EQ(mailbox.drain(), Keys{3});
  CHECK_EQ(mailbox.drain(), Keys{});
}

TEST(mailbox_rings_only_when_told_and_only_with_keys) {
  Mailbox mailbox;
  mailbox.ring();
  CHECK(!readable(mailbox));
  mailbox.post(1);
  CHECK(!readable(mailbox));
  mailbox.ring();
  CHECK(readable(mailbox));
  mailbox.ring();
  mailbox.post(2);
  CHECK(readable(mailbox));
  CHECK_EQ(mailbox.drain(), (Keys{1, 2}));
  CHECK(!readable(mailbox));
  // A second ring of the same keys is not heard.
  mailbox.ring();
  CHECK(!readable(mailbox));
}

TEST(mailbox_drained_before_the_ring_stays_silent) {
  Mailbox mailbox;
  mailbox.post(1);
  CHECK_EQ(mailbox.drain(), Keys{1});
  mailbox.ring();
  CHECK(!readable(mailbox));
  mailbox.post(1);
  mailbox.ring();
  CHECK(readable(mailbox));
}

TEST(mailbox_loses_no_key_among_threads) {
  constexpr int kThreads = 3;
  constexpr std::uint64_t kKeys = 5000;
  Mailbox mailbox;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&mailbox, t] {
      for (std::uint64_t i = 0; i < kKeys; ++i) {
        mailbox.post(static_cast<std::uint64_t>(t) * kKeys + i);
        mailbox.ring();
      }
    });
  }
  std::vector<std::uint64_t> next(kThreads, 0);
  std::size_t seen = 0;
  while (seen < kThreads * kKeys) {
    // Every key was rung for, so that the descriptor says so: a reader that sleeps on it misses
    // none.
    if (!CHECK(readable(mailbox, 60000))) break;
    for (const std::uint64_t key : mailbox.drain()) {
      const std::size_t thread = key / kKeys;
      CHECK_EQ(key % kKeys, next[thread]++);
      ++seen;
    }
  }
  for (auto& thread : threads) thread.join();
  CHECK_EQ(seen, kThreads * kKeys);
}

TEST(mailbox_in_silence_rings_at_the_end_for_what_is_left) {
  Mailbox mailbox, other;
  {
    const Mailbox::Silence silence(mailbox);
    CHECK(!silence.rung());
    mailbox.post(1);
    mailbox.ring();
    CHECK(silence.rung());
    CHECK(!readable(mailbox));
    CHECK_EQ(mailbox.drain(), Keys{1});
    {
      const Mailbox::Silence inner(other);
      other.post(3);
      other.ring();
      CHECK(inner.rung());
      CHECK(!readable(other));
    }
    CHECK(readable(other));
  }
  CHECK(!readable(mailbox));
  {
    const Mailbox::Silence silence(mailbox);
    mailbox.post(2);
    mailbox.ring();
    // Silence is this thread's alone.
    std::thread([&] {
      mailbox.post(3);
      mailbox.ring();
    }).join();
    CHECK(readable(mailbox));
  }
  CHECK_EQ(mailbox.drain(), (Keys{2, 3}));
  {
    const Mailbox::Silence silence(mailbox);
    mailbox.post(4);
    mailbox.ring();
  }
  CHECK(readable(mailbox));
}
