// The end of a scheduler whose decode loop has its own thread: quick in every order, bounded when a
// step is stuck.
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
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
using by_hand::tokens;
using pronk::FinishReason;
using pronk::Generation;
using pronk::InferenceScheduler;
using pronk::PoolOptions;
using pronk::testing::FaultKind;
using pronk::testing::ScriptedModel;

constexpr auto kHangGuard = 60s;

std::unique_ptr<InferenceScheduler> make(const ScriptedModel& model, int permits,
                                         const char* layout = "batched") {
  pronk::SchedulerOptions options;
  options.max_concurrent = permits;
  auto scheduler = std::make_unique<InferenceScheduler>(options);
  PoolOptions pool;
  pool.layout = layout;
  pool.n_ctx = 256;
  scheduler->init_pool(model.engine(), pool);
  return scheduler;
}

std::string expected(const ScriptedModel& model, const std::string& prompt, int n) {
  const auto said = model.expected(tokens(prompt), n);
  return {said.begin(), said.end()};
}

}  // namespace

TEST(shutdown_cancels_what_runs) {
  for (const char* layout : {"batched", "isolated"}) {
    ScriptedModel model;
    model.hold();
    auto scheduler = make(model, 2, layout);
    std::vector<Generation> generations;
    for (int i = 0; i < 4; ++i) generations.push_back(scheduler->generate("prompt", greedy(200)));
    CHECK(model.wait_held(kHangGuard));
    // Even a step that takes for ever is interrupted.
    CHECK(scheduler->close());
    CHECK_EQ(generations[0].result().finish_reason, FinishReason::kCancelled);
    CHECK_EQ(generations[1].result().finish_reason, FinishReason::kCancelled);
    CHECK_THROWS(pronk::SchedulerClosedError, generations[2].result());
    CHECK_THROWS(pronk::SchedulerClosedError, generations[3].result());
    CHECK_EQ(scheduler->active_count(), 0);
    CHECK_EQ(model.violations(), std::vector<std::string>{});
  }
}

TEST(shutdown_drains) {
  ScriptedModel model;
  auto scheduler = make(model, 2);
  std::vector<Generation> generations;
  for (int i = 0; i < 20; ++i)
    generations.push_back(scheduler->generate("prompt" + std::to_string(i), greedy(20)));
  CHECK(scheduler->close(true));
  for (int i = 0; i < 20; ++i)
    CHECK_EQ(generations[i].result().text, expected(model, "prompt" + std::to_string(i), 20));
  CHECK_EQ(model.counters().backends_alive, 0);  // while the scheduler object lives on
}

TEST(shutdown_of_a_stuck_step_is_bounded) {
  // H09: a device hangs. close() says so in time, nobody waits for ever, and what comes back later
  // does no harm.
  for (const char* layout : {"batched", "isolated"}) {
    ScriptedModel model;
    model.add_fault({.kind = FaultKind::kBlock, .call = 3, .ignore_abort = true});
    auto scheduler = make(model, 2, layout);
    auto permit = scheduler->acquire();
    auto stuck = permit.generate("stuck", greedy(50));
    auto queued = scheduler->generate("queued", greedy(50));
    auto waiting = scheduler->generate("waiting", greedy(50));
    CHECK(model.wait_blocked(kHangGuard));
    const auto s = scheduler->statistics();
    CHECK_EQ(s.active, 2);
    CHECK(s.seconds_since_progress >= 0);
    std::thread consumer([&] { CHECK_THROWS(pronk::BackendError, stuck.result()); });
    std::thread other([&] { CHECK(!scheduler->close(false, 50ms)); });
    CHECK(!scheduler->close(false, 50ms));
    consumer.join();
    other.join();
    CHECK_THROWS(pronk::BackendError, queued.result());
    CHECK_THROWS(pronk::SchedulerClosedError, waiting.result());
    CHECK_EQ(scheduler->active_count(), 1);
    permit.release();
    CHECK_EQ(scheduler->active_count(), 0);
    CHECK(!scheduler->close());
    const std::string text = stuck.text();
    scheduler.reset();
    // The step wakes up after all, with nobody left to serve.
    model.release_blocked();
    const auto end = std::chrono::steady_clock::now() + kHangGuard;
    while (model.counters().backends_alive > 0 && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(1ms);
    CHECK_EQ(stuck.text(), text);
    CHECK_EQ(model.violations(), std::vector<std::string>{});
  }
}

TEST(shutdown_at_any_step) {
  for (int steps = 0; steps < 8; ++steps) {
    ScriptedModel model;
    model.hold();
    auto scheduler = make(model, 3);
    std::vector<Generation> generations;
    for (int i = 0; i < 5; ++i) generations.push_back(scheduler->generate("prompt", greedy(5)));
    for (int i = 0; i < steps && model.wait_held(kHangGuard); ++i) model.step();
    std::thread closer([&] { scheduler->close(); });
    CHECK(scheduler->close());
    closer.join();
    for (const auto& g : generations) {
      CHECK(g.done());
      const std::string said = g.text();
      CHECK_EQ(said, expected(model, "prompt", static_cast<int>(said.size())));
    }
    CHECK_EQ(scheduler->active_count(), 0);
  }
}

TEST(shutdown_by_dropping_everything_in_any_order) {
  for (int order = 0; order < 6; ++order) {
    auto model = std::make_unique<ScriptedModel>();
    auto scheduler = make(*model, 2);
    std::optional<pronk::InferencePermit> permit = scheduler->acquire();
    std::optional<Generation> generation = permit->generate("prompt", greedy(200));
    CHECK(model->wait_decodes(1, kHangGuard));
    for (int i = 0; i < 3; ++i) {
      switch ((order / (i == 0 ? 1 : 2) + i) % 3) {
        case 0:
          scheduler.reset();
          break;
        case 1:
          permit.reset();
          break;
        default:
          generation.reset();
      }
    }
    scheduler.reset();
    permit.reset();
    generation.reset();
    CHECK_EQ(model->counters().backends_alive, 0);
    CHECK_EQ(model->violations(), std::vector<std::string>{});
  }
}

TEST(shutdown_refuses_a_pool_afterwards) {
  ScriptedModel model;
  InferenceScheduler scheduler(pronk::SchedulerOptions{});
  scheduler.set_pool(model.engine());
  CHECK(scheduler.close());
  CHECK_THROWS(pronk::SchedulerClosedError, scheduler.generate("x"));
  CHECK_EQ(model.counters().backends_made, 0);
  InferenceScheduler other(pronk::SchedulerOptions{});
  CHECK(other.close());
  CHECK_THROWS(pronk::SchedulerClosedError, other.init_pool(model.engine()));
}

TEST(shutdown_cancel_interrupts_a_running_decode) {
  // The only generation in a decode is cancelled: nobody waits for its result.
  ScriptedModel model;
  model.add_fault({.kind = FaultKind::kBlock, .call = 2});
  auto scheduler = make(model, 2);
  auto g = scheduler->generate("prompt", greedy(50));
  CHECK(model.wait_blocked(kHangGuard));
  g.cancel();
  CHECK(g.wait_for(kHangGuard));
  CHECK_EQ(g.result().finish_reason, FinishReason::kCancelled);
  auto next = scheduler->generate("prompt", greedy(50));
  CHECK_EQ(next.result().text, expected(model, "prompt", 50));
}
