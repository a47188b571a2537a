// A pool that takes long to create: whoever waits for it can turn away, and what nobody waits for
// does not come to life.
#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "by_hand.h"
#include "check.h"
#include "pronk/error.h"
#include "pronk/scheduler.h"
#include "pronk/testing.h"

namespace {

using namespace std::chrono_literals;
using by_hand::greedy;
using pronk::InferenceScheduler;
using pronk::PoolOptions;
using pronk::testing::FaultKind;
using pronk::testing::FaultPoint;
using pronk::testing::ScriptedModel;

constexpr auto kHangGuard = 60s;

struct TurnedAway {};

pronk::SchedulerOptions permits(int n) {
  pronk::SchedulerOptions options;
  options.max_concurrent = n;
  return options;
}

PoolOptions isolated() {
  PoolOptions pool;
  pool.layout = "isolated";
  pool.n_ctx = 64;
  return pool;
}

void block_context(ScriptedModel& model, std::uint64_t number) {
  model.add_fault({.point = FaultPoint::kMakeBackend, .kind = FaultKind::kBlock, .call = number});
}

// Holds the creation at its third context, and turns away from it there.
void turn_away(InferenceScheduler& scheduler, ScriptedModel& model) {
  block_context(model, 3);
  CHECK_THROWS(TurnedAway, scheduler.init_pool(model.engine(), isolated(), [&] {
    if (model.wait_blocked(0ns)) throw TurnedAway();
  }));
}

template <class Condition>
bool eventually(Condition&& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kHangGuard;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

// Four contexts to make, of which one takes for ever.
struct Slow {
  explicit Slow(std::uint64_t number) : scheduler(permits(4)) {
    scheduler.set_pool(model.engine(), isolated());
    block_context(model, number);
  }
  std::future<void> create() {
    return std::async(std::launch::async, [this] { scheduler.create_pool(); });
  }

  ScriptedModel model;
  InferenceScheduler scheduler;
};

}  // namespace

TEST(pool_maker_stops_between_contexts_when_turned_away_from) {
  ScriptedModel model;
  InferenceScheduler scheduler(permits(8));
  turn_away(scheduler, model);
  CHECK(scheduler.engine() == nullptr);
  CHECK_THROWS(pronk::PoolNotInitialisedError, scheduler.create_pool());
  model.release_blocked();
  CHECK(eventually([&] { return model.counters().backends_alive == 0; }));
  CHECK_EQ(model.counters().backends_made, 3);

  scheduler.init_pool(model.engine(), isolated());
  CHECK_EQ(model.counters().backends_alive, 8);
  CHECK_EQ(scheduler.generate("x", greedy(4)).result().tokens.size(), 4u);
}

TEST(pool_maker_is_waited_for_before_the_next_begins) {
  ScriptedModel model;
  InferenceScheduler scheduler(permits(8));
  turn_away(scheduler, model);
  auto second =
      std::async(std::launch::async, [&] { scheduler.init_pool(model.engine(), isolated()); });
  CHECK(second.wait_for(100ms) == std::future_status::timeout);
  CHECK(model.counters().backends_made <= 3);
  model.release_blocked();
  second.get();
  CHECK_EQ(model.counters().backends_alive, 8);
}

TEST(pool_maker_goes_on_for_another_who_waits) {
  Slow slow(2);
  auto other =
      std::async(std::launch::async, [&] { return slow.scheduler.generate("x", greedy(4)); });
  CHECK(slow.model.wait_blocked(kHangGuard));
  CHECK_THROWS(TurnedAway, slow.scheduler.create_pool([] { throw TurnedAway(); }));
  CHECK(other.wait_for(0s) == std::future_status::timeout);
  slow.model.release_blocked();
  CHECK_EQ(other.get().result().tokens.size(), 4u);
  CHECK_EQ(slow.model.counters().backends_made, 4);
}

TEST(pool_maker_failure_reaches_all_who_wait) {
  Slow slow(2);
  slow.model.add_fault(
      {.point = FaultPoint::kMakeBackend, .kind = FaultKind::kNoMemory, .call = 3});
  std::vector<std::future<void>> calls;
  for (int i = 0; i < 3; ++i) {
    calls.push_back(slow.create());
  }
  CHECK(slow.model.wait_blocked(kHangGuard));
  std::this_thread::sleep_for(20ms);  // the others come to wait; one that is late tries again
  slow.model.release_blocked();
  int failed = 0;
  for (auto& call : calls) {
    try {
      call.get();
    } catch (const pronk::InsufficientMemoryError&) {
      ++failed;
    }
  }
  CHECK(failed >= 1);
  slow.scheduler.create_pool();
  CHECK_EQ(slow.model.counters().backends_alive, 4);
}

TEST(pool_maker_is_ended_by_close) {
  Slow slow(2);
  auto waiting = slow.create();
  CHECK(slow.model.wait_blocked(kHangGuard));
  // A context that does not get finished does not keep close() from its time limit.
  CHECK(!slow.scheduler.close(false, 1ms));
  slow.model.release_blocked();
  CHECK_THROWS(pronk::SchedulerClosedError, waiting.get());
  CHECK(slow.scheduler.close());
  CHECK_EQ(slow.model.counters().backends_alive, 0);
  CHECK_EQ(slow.model.counters().backends_made, 2);
}

TEST(pool_maker_knows_how_many_lanes_it_makes) {
  Slow slow(1);
  auto waiting = slow.create();
  CHECK(slow.model.wait_blocked(kHangGuard));
  CHECK_THROWS(pronk::InvalidArgumentError, slow.scheduler.resize(5));
  slow.scheduler.resize(2);
  slow.scheduler.resize(4);
  slow.model.release_blocked();
  waiting.get();
  CHECK_EQ(slow.scheduler.statistics().n_lanes, 4);
}
