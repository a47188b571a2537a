// The gate through its public face, without a pool: order, hand-over, and that no permit is ever
// lost or doubled.
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "pronk/error.h"
#include "pronk/scheduler.h"
#include "pronk/testing.h"

namespace {

using namespace std::chrono_literals;
using pronk::AcquireOptions;
using pronk::InferencePermit;
using pronk::InferenceScheduler;
using pronk::SchedulerOptions;
using pronk::Ticket;
using pronk::TicketStatus;
using pronk::testing::ManualClock;

constexpr auto kHangGuard = 60s;

SchedulerOptions permits(int n, const ManualClock& clock) {
  SchedulerOptions options;
  options.max_concurrent = n;
  options.clock = clock.clock();
  return options;
}

AcquireOptions priority(int value) { return {value, 0}; }
AcquireOptions owner(std::uint64_t who) { return {0, who}; }

/// Nobody holds or waits, and the counters add up.
void check_idle(const InferenceScheduler& scheduler) {
  const auto s = scheduler.statistics();
  CHECK_EQ(s.active, 0);
  CHECK_EQ(s.waiting, 0);
  CHECK_EQ(s.acquired, s.released);
}

}  // namespace

TEST(gate_options_are_checked) {
  using Invalid = pronk::InvalidArgumentError;
  SchedulerOptions options;
  for (const int n : {0, -1, 4097}) {
    options.max_concurrent = n;
    CHECK_THROWS(Invalid, InferenceScheduler(options));
  }
  options.max_concurrent = 1;
  options.max_waiting = -1;
  CHECK_THROWS(Invalid, InferenceScheduler(options));
  options.max_waiting.reset();
  options.ageing_seconds = -1;
  CHECK_THROWS(Invalid, InferenceScheduler(options));
  options.ageing_seconds = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS(Invalid, InferenceScheduler(options));
  options.ageing_seconds = 10;
  InferenceScheduler scheduler(options);
  CHECK_THROWS(Invalid, scheduler.enqueue(priority(1001)));
  CHECK_THROWS(Invalid, scheduler.enqueue(priority(-1001)));
  CHECK_THROWS(Invalid, scheduler.resize(0));
  CHECK_THROWS(pronk::PoolNotInitialisedError, scheduler.generate("x"));
  auto permit = scheduler.acquire();
  CHECK_THROWS(pronk::PoolNotInitialisedError, permit.generate("x"));
  permit.release();
  CHECK_THROWS(pronk::PermitReleasedError, permit.generate("x"));
  check_idle(scheduler);
}

TEST(gate_hands_over_first_come_first_served) {
  ManualClock clock;
  InferenceScheduler scheduler(permits(2, clock));
  std::vector<Ticket> tickets;
  for (int i = 0; i < 10; ++i) tickets.push_back(scheduler.enqueue());
  for (int i = 0; i < 10; ++i) {
    CHECK_EQ(tickets[i].status(), i < 2 ? TicketStatus::kGranted : TicketStatus::kWaiting);
  }
  CHECK_EQ(scheduler.active_count(), 2);
  CHECK_EQ(scheduler.waiting_count(), 8);
  for (int i = 0; i < 10; ++i) {
    CHECK_EQ(tickets[i].wait_for(0ns), TicketStatus::kGranted);
    auto permit = tickets[i].take();
    CHECK_THROWS(pronk::InvalidArgumentError, tickets[i].take());
    permit.release();
    permit.release();
    CHECK(permit.released());
  }
  check_idle(scheduler);
  CHECK_EQ(scheduler.statistics().high_water, 2);
  CHECK_EQ(scheduler.statistics().acquired, 10u);
}

TEST(gate_lets_nobody_barge_in) {
  ManualClock clock;
  InferenceScheduler scheduler(permits(1, clock));
  auto permit = scheduler.try_acquire();
  CHECK(permit.has_value());
  CHECK(!scheduler.try_acquire());
  Ticket waiting = scheduler.enqueue();
  permit->release();
  // The permit is the waiter's although it has not looked yet.
  CHECK_EQ(waiting.status(), TicketStatus::kGranted);
  CHECK(!scheduler.try_acquire());
  CHECK_EQ(scheduler.active_count(), 1);
  {
    auto taken = waiting.take();
  }
  CHECK(scheduler.try_acquire().has_value());
  check_idle(scheduler);
}

TEST(gate_serves_higher_priority_first_and_in_order_within_one) {
  ManualClock clock;
  auto options = permits(1, clock);
  options.ageing_seconds = 0;
  InferenceScheduler scheduler(options);
  auto permit = scheduler.acquire();
  std::vector<int> wanted = {0, 5, -3, 5, 0, 7, -3};
  std::vector<Ticket> tickets;
  for (const int p : wanted) {
    tickets.push_back(scheduler.enqueue(priority(p)));
    clock.advance(1h);
  }
  permit.release();
  for (const std::size_t next : {5, 1, 3, 0, 4, 2, 6}) {
    CHECK_EQ(tickets[next].status(), TicketStatus::kGranted);
    tickets[next].cancel();
  }
  check_idle(scheduler);
}

TEST(gate_waiting_raises_priority) {
  ManualClock clock;
  auto options = permits(1, clock);
  options.ageing_seconds = 10;
  InferenceScheduler scheduler(options);
  auto permit = scheduler.acquire();
  Ticket old = scheduler.enqueue(priority(0));
  clock.advance(29s);
  Ticket urgent = scheduler.enqueue(priority(3));  // worth 30 s of waiting
  clock.advance(2s);
  Ticket late = scheduler.enqueue(priority(3));
  permit.release();
  CHECK_EQ(urgent.status(), TicketStatus::kGranted);
  urgent.cancel();
  CHECK_EQ(old.status(), TicketStatus::kGranted);
  old.cancel();
  CHECK_EQ(late.status(), TicketStatus::kGranted);
  late.cancel();
  check_idle(scheduler);
}

TEST(gate_passes_on_what_is_dropped) {
  ManualClock clock;
  InferenceScheduler scheduler(permits(1, clock));
  auto first = std::make_optional(scheduler.enqueue());
  auto second = std::make_optional(scheduler.enqueue());
  auto third = std::make_optional(scheduler.enqueue());
  second.reset();  // while it waits
  CHECK_EQ(scheduler.waiting_count(), 1);
  first.reset();  // granted, never taken
  CHECK_EQ(third->status(), TicketStatus::kGranted);
  InferencePermit permit = third->take();
  third.reset();  // the permit lives on
  CHECK_EQ(scheduler.active_count(), 1);
  InferencePermit moved = std::move(permit);
  permit.release();
  CHECK(permit.released());
  CHECK_EQ(scheduler.active_count(), 1);
  CHECK_THROWS(pronk::AcquireTimeout, scheduler.acquire(0s));
  moved.release();
  check_idle(scheduler);
}

TEST(gate_assignment_gives_back_what_was_there) {
  ManualClock clock;
  InferenceScheduler scheduler(permits(2, clock));
  auto a = scheduler.acquire();
  auto b = scheduler.acquire();
  a = std::move(b);
  CHECK_EQ(scheduler.active_count(), 1);
  a.release();
  Ticket t = scheduler.enqueue();
  Ticket u = scheduler.enqueue();
  t = std::move(u);
  CHECK_EQ(scheduler.active_count(), 1);
  t.cancel();
  t.cancel();
  CHECK_EQ(t.status(), TicketStatus::kCancelled);
  CHECK_THROWS(pronk::Error, t.take());
  check_idle(scheduler);
}

TEST(gate_times_out) {
  ManualClock clock;
  InferenceScheduler scheduler(permits(1, clock));
  auto permit = scheduler.acquire(0s);
  CHECK_THROWS(pronk::AcquireTimeout, scheduler.acquire(0s));
  CHECK_THROWS(pronk::AcquireTimeout, scheduler.acquire(-5s));
  std::thread waiter([&] { CHECK_THROWS(pronk::AcquireTimeout, scheduler.acquire(10s)); });
  CHECK(clock.wait_for_waiters(1, kHangGuard));
  clock.advance(9999ms);
  CHECK(clock.wait_for_waiters(1, kHangGuard));
  CHECK_EQ(scheduler.waiting_count(), 1);
  clock.advance(1ms);
  waiter.join();
  CHECK_EQ(scheduler.waiting_count(), 0);
  CHECK_EQ(scheduler.statistics().timed_out, 3u);
  permit.release();
  check_idle(scheduler);
}

TEST(gate_wakes_a_blocked_thread) {
  ManualClock clock;
  InferenceScheduler scheduler(permits(1, clock));
  auto permit = scheduler.acquire();
  std::atomic<int> got{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      const auto mine = scheduler.acquire();
      ++got;
    });
  }
  CHECK(clock.wait_for_waiters(3, kHangGuard));
  CHECK_EQ(got.load(), 0);
  permit.release();
  for (auto& thread : threads) thread.join();
  CHECK_EQ(got.load(), 3);
  check_idle(scheduler);
  CHECK_EQ(scheduler.statistics().high_water, 1);
}

TEST(gate_bounds_its_queue) {
  ManualClock clock;
  auto options = permits(1, clock);
  options.max_waiting = 2;
  InferenceScheduler scheduler(options);
  auto permit = scheduler.acquire();
  Ticket a = scheduler.enqueue();
  Ticket b = scheduler.enqueue();
  CHECK_THROWS(pronk::QueueFullError, scheduler.enqueue());
  CHECK_THROWS(pronk::QueueFullError, scheduler.acquire(1s));
  a.cancel();
  Ticket c = scheduler.enqueue();
  CHECK_EQ(scheduler.waiting_count(), 2);
  options.max_waiting = 0;
  InferenceScheduler none(options);
  auto free = none.acquire();
  CHECK_THROWS(pronk::QueueFullError, none.acquire());
}

TEST(gate_refuses_to_wait_for_oneself) {
  ManualClock clock;
  InferenceScheduler scheduler(permits(2, clock));
  auto a = scheduler.acquire(std::nullopt, owner(1));
  auto b = scheduler.acquire(std::nullopt, owner(1));
  CHECK_THROWS(pronk::DeadlockError, scheduler.acquire(std::nullopt, owner(1)));
  CHECK_THROWS(pronk::DeadlockError, scheduler.check_deadlock(1));
  scheduler.check_deadlock(2);
  // Others may wait, and so may the owner once it holds less than all.
  Ticket other = scheduler.enqueue(owner(2));
  CHECK_EQ(other.status(), TicketStatus::kWaiting);
  b.release();
  CHECK_EQ(other.status(), TicketStatus::kGranted);
  scheduler.check_deadlock(1);
  Ticket again = scheduler.enqueue(owner(1));
  CHECK_EQ(again.status(), TicketStatus::kWaiting);
  again.cancel();
  a.release();
  other.cancel();
  // Nobody in particular is never refused.
  auto c = scheduler.acquire();
  auto d = scheduler.acquire();
  CHECK_THROWS(pronk::AcquireTimeout, scheduler.acquire(0s));
}

TEST(gate_resizes) {
  ManualClock clock;
  InferenceScheduler scheduler(permits(3, clock));
  std::vector<InferencePermit> held;
  for (int i = 0; i < 3; ++i) held.push_back(scheduler.acquire());
  Ticket a = scheduler.enqueue();
  Ticket b = scheduler.enqueue();
  scheduler.resize(1);
  CHECK_EQ(scheduler.active_count(), 3);
  held.pop_back();
  held.pop_back();
  CHECK_EQ(scheduler.active_count(), 1);
  CHECK_EQ(a.status(), TicketStatus::kWaiting);
  held.pop_back();
  CHECK_EQ(a.status(), TicketStatus::kGranted);
  CHECK_EQ(b.status(), TicketStatus::kWaiting);
  scheduler.resize(2);
  CHECK_EQ(b.status(), TicketStatus::kGranted);
  CHECK_EQ(scheduler.max_concurrent(), 2);
}

TEST(gate_close_ends_the_waiting) {
  ManualClock clock;
  InferenceScheduler scheduler(permits(1, clock));
  auto permit = scheduler.acquire();
  Ticket ticket = scheduler.enqueue();
  std::thread blocked([&] { CHECK_THROWS(pronk::SchedulerClosedError, scheduler.acquire()); });
  CHECK(clock.wait_for_waiters(1, kHangGuard));
  CHECK(!scheduler.closed());
  CHECK(scheduler.close());
  blocked.join();
  CHECK(scheduler.closed());
  CHECK_EQ(ticket.status(), TicketStatus::kClosed);
  CHECK_THROWS(pronk::SchedulerClosedError, ticket.take());
  using Closed = pronk::SchedulerClosedError;
  CHECK_THROWS(Closed, scheduler.acquire());
  CHECK_THROWS(Closed, scheduler.try_acquire());
  CHECK_THROWS(Closed, scheduler.enqueue());
  CHECK_THROWS(Closed, scheduler.resize(2));
  permit.release();
  CHECK(scheduler.close());
  CHECK(scheduler.close(true));
  check_idle(scheduler);
}

TEST(gate_drains) {
  ManualClock clock;
  InferenceScheduler scheduler(permits(1, clock));
  auto permit = scheduler.acquire();
  Ticket ticket = scheduler.enqueue();
  std::thread closer([&] { CHECK(scheduler.close(true, 10s)); });
  CHECK(clock.wait_for_waiters(1, kHangGuard));
  // New ones are refused, those that wait are served.
  CHECK_THROWS(pronk::SchedulerClosedError, scheduler.enqueue());
  permit.release();
  {
    auto last = ticket.take();
  }
  closer.join();
  check_idle(scheduler);

  InferenceScheduler slow(permits(1, clock));
  auto held = slow.acquire();
  Ticket waiting = slow.enqueue();
  std::thread impatient([&] { CHECK(!slow.close(true, 10s)); });
  CHECK(clock.wait_for_waiters(1, kHangGuard));
  clock.advance(10s);
  impatient.join();
  CHECK_EQ(waiting.status(), TicketStatus::kClosed);
}

TEST(gate_two_closes_at_once) {
  ManualClock clock;
  InferenceScheduler scheduler(permits(1, clock));
  auto permit = scheduler.acquire();
  Ticket ticket = scheduler.enqueue();
  std::thread draining([&] { CHECK(scheduler.close(true)); });
  CHECK(clock.wait_for_waiters(1, kHangGuard));
  CHECK(scheduler.close(false));
  CHECK_EQ(ticket.status(), TicketStatus::kClosed);
  permit.release();
  draining.join();
  check_idle(scheduler);
}

TEST(gate_tells_a_mailbox) {
  ManualClock clock;
  InferenceScheduler scheduler(permits(1, clock));
  const auto mailbox = std::make_shared<pronk::Mailbox>();
  using Keys = std::vector<std::uint64_t>;
  Ticket a = scheduler.enqueue();
  a.listen({mailbox, 1});  // granted already
  CHECK_EQ(mailbox->drain(), Keys{1});
  Ticket b = scheduler.enqueue();
  Ticket c = scheduler.enqueue();
  Ticket d = scheduler.enqueue();
  b.listen({mailbox, 2});
  c.listen({mailbox, 3});
  d.listen({mailbox, 4});
  CHECK_EQ(mailbox->drain(), Keys{});
  a.cancel();
  CHECK_EQ(mailbox->drain(), Keys{2});
  c.cancel();
  CHECK_EQ(mailbox->drain(), Keys{3});
  scheduler.close();
  CHECK_EQ(mailbox->drain(), Keys{4});
  // A ticket keeps its mailbox no longer than it waits.
  CHECK_EQ(mailbox.use_count(), 1);
}

TEST(gate_handles_outlive_the_scheduler) {
  ManualClock clock;
  auto scheduler = std::make_unique<InferenceScheduler>(permits(1, clock));
  auto permit = scheduler->acquire();
  Ticket ticket = scheduler->enqueue();
  scheduler.reset();
  CHECK_EQ(ticket.status(), TicketStatus::kWaiting);
  permit.release();
  CHECK_EQ(ticket.status(), TicketStatus::kGranted);
}

TEST(gate_cancel_races_with_grant) {
  // One thread releases, another gives its ticket up at the same time, in every way there is: the
  // permit is never lost.
  std::mt19937_64 random(check::seed());
  for (int round = 0; round < 500; ++round) {
    ManualClock clock;
    InferenceScheduler scheduler(permits(1, clock));
    auto permit = std::make_optional(scheduler.acquire());
    auto b = std::make_optional(scheduler.enqueue());
    Ticket c = scheduler.enqueue();
    const auto way = random() % 4;
    std::atomic<int> ready{0};
    const auto together = [&ready] {
      ++ready;
      while (ready < 2) {
      }
    };
    std::thread releaser([&] {
      together();
      permit.reset();
    });
    together();
    switch (way) {
      case 0:
        b->cancel();
        break;
      case 1:
        b->cancel(true);
        break;
      case 2:
        b.reset();
        break;
      default:
        if (b->wait_for(kHangGuard) == TicketStatus::kGranted) auto taken = b->take();
    }
    releaser.join();
    if (!CHECK_EQ(c.status(), TicketStatus::kGranted)) break;
    {
      auto mine = c.take();
    }
    check_idle(scheduler);
    CHECK_EQ(scheduler.statistics().high_water, 1);
  }
}

TEST(gate_random_threads) {
  const std::uint64_t seed = check::seed();
  constexpr int kPermits = 2;
  InferenceScheduler scheduler([] {
    SchedulerOptions options;
    options.max_concurrent = kPermits;
    return options;
  }());
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  const auto hold = [&](InferencePermit permit, std::mt19937_64& random) {
    const int now = ++inside;
    int seen = most;
    while (now > seen && !most.compare_exchange_weak(seen, now)) {
    }
    if (random() % 4 == 0) std::this_thread::yield();
    --inside;
    permit.release();
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(seed + static_cast<std::uint64_t>(t));
      for (int i = 0; i < 2000; ++i) {
        switch (random() % 4) {
          case 0:
            hold(scheduler.acquire(), random);
            break;
          case 1:
            if (auto permit = scheduler.try_acquire()) hold(std::move(*permit), random);
            break;
          case 2: {
            Ticket ticket = scheduler.enqueue(priority(static_cast<int>(random() % 5)));
            if (ticket.wait_for(std::chrono::microseconds(random() % 20)) ==
                TicketStatus::kGranted) {
              hold(ticket.take(), random);
            }
            break;
          }
          default:
            try {
              hold(scheduler.acquire(std::chrono::microseconds(random() % 50)), random);
            } catch (const pronk::AcquireTimeout&) {
            }
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(most <= kPermits);
  check_idle(scheduler);
}
