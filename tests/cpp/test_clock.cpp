// The clocks: no wake-up of the manual one may be lost, and a waiter may go away at any time.
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "check.h"
#include "clock.h"
#include "pronk/error.h"
#include "pronk/testing.h"

namespace {

using namespace std::chrono_literals;
using pronk::testing::ManualClock;

constexpr auto kHangGuard = 60s;
// For what must not happen: long enough that it would, mostly.
constexpr auto kMoment = 20ms;

/// Waits until `deadline` on a mutex and condition of its own, which end with the call.
void wait_for_time(pronk::Clock& clock, pronk::TimePoint deadline) {
  std::mutex mutex;
  std::condition_variable condition;
  std::unique_lock lock(mutex);
  while (clock.now() < deadline) clock.wait_until(condition, lock, deadline);
}

}  // namespace

TEST(manual_clock_stands_still_until_advanced) {
  const ManualClock clock;
  CHECK(clock.now() == 0ns);
  CHECK(clock.clock()->now() == clock.clock()->now());
  ManualClock copy = clock;
  copy.advance(1500ms);
  CHECK(clock.now() == 1500ms);
  CHECK(clock.clock()->now().time_since_epoch() == 1500ms);
}

TEST(manual_clock_does_not_go_back_or_overflow) {
  ManualClock clock;
  CHECK_THROWS(pronk::InvalidArgumentError, clock.advance(-1ns));
  clock.advance(std::chrono::nanoseconds::max());
  clock.advance(std::chrono::nanoseconds::max());
  CHECK(clock.now() == std::chrono::nanoseconds::max());
}

TEST(manual_clock_returns_at_once_from_a_deadline_in_the_past) {
  ManualClock clock;
  clock.advance(2s);
  wait_for_time(*clock.clock(), pronk::TimePoint(2s));
  CHECK_EQ(clock.waiters(), 0);
}

TEST(manual_clock_wakes_a_waiter_only_when_its_time_has_come) {
  ManualClock clock;
  std::atomic<bool> woken{false};
  std::thread waiter([&] {
    wait_for_time(*clock.clock(), pronk::TimePoint(10s));
    woken = true;
  });
  CHECK(clock.wait_for_waiters(1, kHangGuard));
  clock.advance(9s);
  CHECK(clock.wait_for_waiters(1, kHangGuard));
  CHECK(!woken);
  clock.advance(1s);
  waiter.join();
  CHECK(woken);
  CHECK_EQ(clock.waiters(), 0);
  CHECK(!clock.wait_for_waiters(1, 0ns));
}

TEST(manual_clock_leaves_other_notifications_alone) {
  ManualClock clock;
  std::mutex mutex;
  std::condition_variable condition;
  bool ready = false;
  std::thread waiter([&] {
    std::unique_lock lock(mutex);
    while (!ready) clock.clock()->wait_until(condition, lock, pronk::TimePoint::max());
  });
  CHECK(clock.wait_for_waiters(1, kHangGuard));
  {
    const std::lock_guard lock(mutex);
    ready = true;
    condition.notify_one();
  }
  waiter.join();
  CHECK_EQ(clock.waiters(), 0);
}

TEST(manual_clock_loses_no_wake_up_at_the_edge_of_sleep) {
  ManualClock clock;
  constexpr int kRounds = 5000;
  std::mutex mutex;
  std::condition_variable condition;
  std::atomic<int> woken{0};
  std::thread waiter([&] {
    std::unique_lock lock(mutex);
    for (int round = 1; round <= kRounds; ++round) {
      const pronk::TimePoint deadline{std::chrono::nanoseconds(round)};
      while (clock.clock()->now() < deadline) clock.clock()->wait_until(condition, lock, deadline);
      woken = round;
    }
  });
  // One step for each sleep, taken as soon as the waiter is known to the clock and perhaps not
  // asleep yet: nothing but this step can wake it.
  for (int round = 1; round <= kRounds; ++round) {
    while (clock.waiters() == 0) std::this_thread::yield();
    clock.advance(1ns);
    const auto limit = std::chrono::steady_clock::now() + kHangGuard;
    while (woken < round && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    if (!CHECK(woken >= round)) clock.advance(1s);
  }
  waiter.join();
}

TEST(manual_clock_outlives_waiters_that_come_and_go) {
  ManualClock clock;
  std::atomic<int> running{4};
  std::vector<std::thread> threads;
  const std::uint64_t seed = check::seed();
  for (std::uint64_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937_64 random(seed + i);
      for (int round = 0; round < 300; ++round) {
        const std::chrono::nanoseconds ahead(random() % 3);
        wait_for_time(*clock.clock(), clock.clock()->now() + ahead);
      }
      --running;
    });
  }
  while (running > 0) {
    if (clock.wait_for_waiters(1, 1ms)) clock.advance(1ns);
  }
  for (auto& thread : threads) thread.join();
  CHECK_EQ(clock.waiters(), 0);
}

TEST(manual_clock_notifies_under_the_mutex_of_the_waiter) {
  // Else a waiter that is about to sleep would miss it.
  ManualClock clock;
  std::mutex mutex;
  std::condition_variable condition;
  std::thread waiter([&] {
    std::unique_lock lock(mutex);
    while (clock.now() < 1ns) {
      clock.clock()->wait_until(condition, lock, pronk::TimePoint(1ns));
    }
  });
  CHECK(clock.wait_for_waiters(1, kHangGuard));
  std::unique_lock lock(mutex);
  std::atomic<bool> advanced{false};
  std::thread mover([&] {
    clock.advance(1ns);
    advanced = true;
  });
  while (clock.now() < 1ns) std::this_thread::yield();
  std::this_thread::sleep_for(kMoment);
  CHECK(!advanced);
  lock.unlock();
  mover.join();
  waiter.join();
}

TEST(manual_clock_keeps_a_waiter_that_it_is_about_to_notify) {
  // Else the waiter could be gone with its mutex and condition by then.
  ManualClock clock;
  std::mutex first_mutex, second_mutex;
  std::condition_variable first_condition, second_condition;
  bool ready = false;
  std::atomic<bool> left{false};
  std::thread first([&] {
    std::unique_lock lock(first_mutex);
    while (clock.now() < 1ns) {
      clock.clock()->wait_until(first_condition, lock, pronk::TimePoint(1ns));
    }
  });
  CHECK(clock.wait_for_waiters(1, kHangGuard));
  std::thread second([&] {
    std::unique_lock lock(second_mutex);
    while (!ready) clock.clock()->wait_until(second_condition, lock, pronk::TimePoint::max());
    left = true;
  });
  CHECK(clock.wait_for_waiters(2, kHangGuard));
  // Stops the clock at the first waiter, while the second one is woken by somebody else.
  std::unique_lock lock(first_mutex);
  std::thread mover([&] { clock.advance(1ns); });
  while (clock.now() < 1ns) std::this_thread::yield();
  {
    const std::lock_guard own(second_mutex);
    ready = true;
    second_condition.notify_one();
  }
  std::this_thread::sleep_for(kMoment);
  CHECK(!left);
  lock.unlock();
  mover.join();
  first.join();
  second.join();
}

TEST(manual_clock_can_be_advanced_by_several_threads) {
  ManualClock clock;
  std::vector<std::thread> movers;
  std::thread waiter([&] { wait_for_time(*clock.clock(), pronk::TimePoint(4000ns)); });
  for (int i = 0; i < 4; ++i) {
    movers.emplace_back([&] {
      for (int step = 0; step < 1000; ++step) clock.advance(1ns);
    });
  }
  for (auto& mover : movers) mover.join();
  waiter.join();
  CHECK(clock.now() == 4000ns);
}

TEST(steady_clock_moves_and_wakes) {
  const auto clock = pronk::Clock::steady();
  const auto start = clock->now();
  wait_for_time(*clock, start + 2ms);
  CHECK(clock->now() >= start + 2ms);
  std::mutex mutex;
  std::condition_variable condition;
  bool ready = false;
  std::thread notifier([&] {
    const std::lock_guard lock(mutex);
    ready = true;
    condition.notify_all();
  });
  std::unique_lock lock(mutex);
  while (!ready) clock->wait_until(condition, lock, pronk::TimePoint::max());
  lock.unlock();
  notifier.join();
  CHECK(ready);
}
