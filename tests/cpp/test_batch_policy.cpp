// The batch policy, without a model: every small case, then random ones.
#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "batch_policy.h"
#include "check.h"

namespace {

using pronk::BatchPlan;
using pronk::BatchPolicy;
using pronk::LaneWork;
using pronk::PolicyOptions;
using pronk::Slice;

PolicyOptions options(int n_batch) {
  PolicyOptions result;
  result.n_batch = n_batch;
  return result;
}

bool is_near(double value, double wanted, double off) { return std::abs(value - wanted) <= off; }

int size_of(const BatchPlan& plan) {
  int size = 0;
  for (const Slice& slice : plan) size += slice.n_tokens;
  return size;
}

/// What holds for every plan. `budget` is that of the policy before the call.
bool holds(std::span<const LaneWork> work, std::span<const BatchPlan> plans, int n_batch,
           int budget) {
  std::map<int, int> given;
  std::map<int, int> batches_of;
  bool good = true;
  for (const BatchPlan& plan : plans) {
    good &= CHECK(!plan.empty());
    good &= CHECK(size_of(plan) <= n_batch);
    std::set<int> lanes;
    for (const Slice& slice : plan) {
      good &= CHECK(slice.n_tokens >= 1);
      good &= CHECK(lanes.insert(slice.lane).second);
      given[slice.lane] += slice.n_tokens;
      ++batches_of[slice.lane];
    }
  }
  bool decoding = false;
  int n_prompt = 0;
  int n_wanted = 0;
  std::vector<int> decoders;
  for (const LaneWork& lane : work) {
    const bool decodes = lane.remaining == 1;
    good &= CHECK(given[lane.lane] <= lane.most);
    if (lane.alone) {
      good &= CHECK_EQ(given[lane.lane], std::min(lane.most, n_batch));
      good &= CHECK_EQ(batches_of[lane.lane], 1);
    } else if (decodes) {
      good &= CHECK_EQ(given[lane.lane], 1);
      good &= CHECK_EQ(batches_of[lane.lane], 1);
      decoders.push_back(lane.lane);
      decoding = true;
    } else {
      n_prompt += given[lane.lane];
      n_wanted += lane.most;
    }
  }
  const int limit = decoding ? budget : n_batch;
  good &= CHECK(n_prompt <= limit);
  // Room is not left unused by more than the even shares leave over.
  if (n_wanted > 0) good &= CHECK(n_prompt >= 1);
  std::vector<int> order;
  for (const BatchPlan& plan : plans) {
    for (const Slice& slice : plan) {
      const auto lane =
          std::find_if(work.begin(), work.end(), [&](auto& w) { return w.lane == slice.lane; });
      if (!good) break;
      if (lane->alone) good &= CHECK_EQ(plan.size(), 1u);
      if (!lane->alone && lane->remaining == 1) order.push_back(slice.lane);
    }
  }
  // Decoding lanes come first, in order.
  good &= CHECK_EQ(order, decoders);
  std::size_t seen = 0;
  for (const BatchPlan& plan : plans) {
    for (const Slice& slice : plan) {
      if (seen < decoders.size()) good &= CHECK_EQ(slice.lane, decoders[seen]);
      ++seen;
    }
  }
  return good;
}

}  // namespace

TEST(policy_small_cases_exhaustively) {
  // Up to 4 lanes; each absent, decoding, in prefill (all of it, or a part), or alone.
  struct Kind {
    int remaining, most;
    bool alone;
  };
  const std::vector<Kind> kinds = {{0, 0, false}, {1, 1, false}, {2, 2, false},
                                   {3, 1, false}, {9, 9, false}, {9, 4, false},
                                   {1, 1, true},  {7, 7, true},  {7, 2, true}};
  const std::size_t n = kinds.size();
  for (int n_batch = 1; n_batch <= 8; ++n_batch) {
    for (std::size_t code = 0; code < n * n * n * n; ++code) {
      std::vector<LaneWork> work;
      std::size_t rest = code;
      for (int lane = 0; lane < 4; ++lane, rest /= n) {
        const Kind& kind = kinds[rest % n];
        if (kind.remaining > 0) work.push_back({lane, kind.remaining, kind.most, kind.alone});
      }
      BatchPolicy policy(options(n_batch));
      const int budget = policy.prompt_budget();
      if (!holds(work, policy.plan(work), n_batch, budget)) return;
      // Again: the place to go on from has moved.
      if (!holds(work, policy.plan(work), n_batch, budget)) return;
    }
  }
}

TEST(policy_random_cases) {
  std::mt19937_64 random(check::seed());
  const auto up_to = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 200; ++round) {
    const int n_batch = 1 + up_to(64);
    PolicyOptions with = options(n_batch);
    with.min_chunk = 1 + up_to(20);
    BatchPolicy policy(with);
    for (int step = 0; step < 50; ++step) {
      std::vector<LaneWork> work;
      for (int lane = 0; lane < 40; ++lane) {
        if (up_to(3) == 0) continue;
        const int remaining = up_to(2) == 0 ? 1 : 1 + up_to(200);
        work.push_back({lane, remaining, 1 + up_to(remaining), up_to(10) == 0});
      }
      const int budget = policy.prompt_budget();
      CHECK(budget >= 1 && budget <= n_batch);
      if (!holds(work, policy.plan(work), n_batch, budget)) return;
      policy.observe(up_to(5), up_to(3) * 10, up_to(1000) * 1e-4);
    }
  }
}

TEST(policy_round_robin_serves_everybody) {
  // Any number of lanes in prefill beside one that decodes, any budget: nobody waits longer than
  // one turn.
  for (int n_lanes = 1; n_lanes <= 20; ++n_lanes) {
    for (int chunk = 1; chunk <= 20; ++chunk) {
      PolicyOptions with = options(64);
      with.min_chunk = chunk;
      BatchPolicy policy(with);
      std::vector<LaneWork> work = {{0, 1, 1, false}};
      for (int lane = 1; lane <= n_lanes; ++lane) work.push_back({lane, 1000, 1000, false});
      const int bound = (n_lanes + chunk - 1) / chunk;
      std::vector<int> waited(static_cast<std::size_t>(n_lanes) + 1, 0);
      for (int step = 0; step < 100; ++step) {
        for (int& w : waited) ++w;
        for (const BatchPlan& plan : policy.plan(work)) {
          for (const Slice& slice : plan) waited[static_cast<std::size_t>(slice.lane)] = 0;
        }
        for (const int w : waited) {
          if (!CHECK(w < bound)) return;
        }
      }
    }
  }
}

TEST(policy_shares_evenly) {
  BatchPolicy policy(options(30));
  const std::vector<LaneWork> work = {
      {0, 100, 100, false}, {1, 100, 100, false}, {2, 4, 4, false}, {3, 100, 100, false}};
  std::map<int, int> given;
  for (int step = 0; step < 20; ++step) {
    for (const BatchPlan& plan : policy.plan(work)) {
      for (const Slice& slice : plan) given[slice.lane] += slice.n_tokens;
    }
  }
  CHECK(given[2] == 20 * 4);
  const auto [least, most] = std::minmax({given[0], given[1], given[3]});
  CHECK(most - least <= most / 4);
}

TEST(policy_takes_a_full_batch_when_nobody_decodes) {
  BatchPolicy policy(options(64));
  std::vector<LaneWork> work = {{0, 1000, 1000, false}};
  CHECK_EQ(policy.plan(work)[0], (BatchPlan{{0, 64}}));
  work = {{0, 1000, 1000, false}, {1, 1000, 10, false}};
  const auto plans = policy.plan(work);
  REQUIRE(plans.size() == 1);
  CHECK(size_of(plans[0]) <= 64);
}

TEST(policy_splits_decoding_lanes_over_batches) {
  BatchPolicy policy(options(16));
  std::vector<LaneWork> work;
  for (int lane = 0; lane < 64; ++lane) work.push_back({lane, 1, 1, false});
  const auto plans = policy.plan(work);
  CHECK_EQ(plans.size(), 4u);
  int next = 0;
  for (const BatchPlan& plan : plans) {
    for (const Slice& slice : plan) CHECK_EQ(slice.lane, next++);
  }
  CHECK_EQ(next, 64);
}

TEST(policy_budget_follows_the_measured_speed) {
  PolicyOptions with = options(512);
  with.max_step_seconds = 0.05;
  with.max_step_ratio = 1000;
  with.min_chunk = 16;
  BatchPolicy policy(with);
  CHECK_EQ(policy.prompt_budget(), 16);
  // A step that decodes takes 10 ms; chunks of 50 and of 150 tokens come in turn.
  const auto observe = [&policy](int times, double per_token) {
    for (int i = 0; i < times; ++i) {
      const int n = i % 2 == 0 ? 50 : 150;
      policy.observe(4, 0, 0.010);
      policy.observe(4, n, 0.010 + n * per_token);
    }
  };
  observe(200, 0.0002);
  CHECK(policy.prompt_budget() >= 195 && policy.prompt_budget() <= 205);
  // Slower: fewer. Hopelessly slow: the least, never none.
  observe(400, 0.002);
  CHECK(policy.prompt_budget() >= 18 && policy.prompt_budget() <= 21);
  observe(400, 0.1);
  CHECK_EQ(policy.prompt_budget(), 16);
  observe(600, 0.0001);
  CHECK(policy.prompt_budget() > 300);
}

TEST(policy_keeps_an_even_pace) {
  PolicyOptions with = options(512);
  with.max_step_seconds = 1;
  with.max_step_ratio = 3;
  BatchPolicy policy(with);
  for (int i = 0; i < 200; ++i) {
    policy.observe(4, 0, 0.001);
    policy.observe(4, 10 + i % 2 * 10, 0.002 + i % 2 * 0.001);
  }
  // 2 ms on top of a step of 1 ms, at 0.1 ms a token.
  CHECK(policy.prompt_budget() >= 19 && policy.prompt_budget() <= 21);
}

TEST(policy_serves_prompts_of_a_model_slower_than_the_limit) {
  PolicyOptions with = options(512);
  with.max_step_seconds = 0.05;
  BatchPolicy policy(with);
  for (int i = 0; i < 200; ++i) {
    policy.observe(4, 0, 0.1);
    policy.observe(4, 20 + i % 2 * 20, 0.1 + 0.02 + i % 2 * 0.02);
  }
  // Half a step of 100 ms more, at 1 ms a token.
  CHECK(policy.prompt_budget() >= 49 && policy.prompt_budget() <= 51);
}

namespace {

/// A machine whose steps take: decoding, a fixed cost for any chunk, and a cost for each token.
struct Machine {
  double decode, fixed, per_token;

  /// Prompt tokens per step, in the end, of a lane with an endless prompt beside one that decodes.
  int settles_at(BatchPolicy& policy) const {
    const std::vector<LaneWork> work = {{0, 1, 1, false}, {1, 100000, 100000, false}};
    int n_prompt = 0;
    for (int step = 0; step < 500; ++step) {
      n_prompt = 0;
      for (const BatchPlan& plan : policy.plan(work)) n_prompt += size_of(plan);
      --n_prompt;
      policy.observe(1, 0, decode);
      policy.observe(1, n_prompt, decode + fixed + n_prompt * per_token);
    }
    return n_prompt;
  }
};

}  // namespace

TEST(policy_finds_the_size_of_chunks_by_itself) {
  PolicyOptions with = options(512);
  with.max_step_seconds = 0.1;
  with.max_step_ratio = 4;
  for (const Machine machine : {Machine{0.02, 0, 0.001}, Machine{0.02, 0.02, 0.001},
                                Machine{0.02, 0.03, 0.0005}, Machine{0.002, 0, 0.00002}}) {
    BatchPolicy policy(with);
    const double room = 4 * machine.decode - machine.decode - machine.fixed;
    CHECK(is_near(machine.settles_at(policy) * machine.per_token, room, 0.1 * room));
  }
}

TEST(policy_gives_no_chunk_that_is_not_worth_its_fixed_cost) {
  // Within 4 steps of 8 ms there is no room for anything, so that the smallest chunks would go on
  // for ever, each for 25 ms.
  PolicyOptions with = options(512);
  with.max_step_seconds = 0.1;
  with.max_step_ratio = 4;
  BatchPolicy policy(with);
  for (int i = 0; i < 20; ++i) policy.observe(0, 256, 0.025 + 256 * 0.001);
  const int n = Machine{0.008, 0.025, 0.001}.settles_at(policy);
  CHECK(n >= 20 && n <= 30);
  // Nor is a chunk shared among so many that none gets one.
  const std::vector<LaneWork> work = {
      {0, 1, 1, false}, {1, 500, 500, false}, {2, 500, 500, false}, {3, 500, 500, false}};
  std::set<int> served;
  for (int step = 0; step < 3; ++step) {
    const auto plans = policy.plan(work);
    REQUIRE(plans.size() == 1);
    REQUIRE(plans[0].size() == 2);
    served.insert(plans[0][1].lane);
  }
  CHECK_EQ(served.size(), 3u);
}

TEST(policy_survives_odd_times) {
  for (const double seconds : {0.0, 1e-12, 1e12}) {
    BatchPolicy policy(options(64));
    for (int i = 0; i < 10; ++i) {
      policy.observe(0, 0, seconds);
      policy.observe(1, 0, seconds);
      policy.observe(0, 5, seconds);
      policy.observe(3, 5, seconds);
      CHECK(policy.prompt_budget() >= 1 && policy.prompt_budget() <= 64);
    }
  }
}
