// The number of compute threads settles where batches are fastest, and looking for it stays cheap.
#include <cstdint>
#include <random>

#include "check.h"
#include "thread_governor.h"

using pronk::ThreadGovernor;

namespace {

/// A machine with `free` CPUs: beyond them, threads wait for each other at every barrier.
struct Machine {
  std::int32_t free;
  double work = 0.04;  ///< seconds of a batch on one thread
  std::mt19937 random{1};

  double batch(std::int32_t n_threads) {
    const double noise = std::uniform_real_distribution<>(0.95, 1.05)(random);
    if (n_threads <= free) return noise * work / n_threads;
    return noise * work * std::uniform_real_distribution<>(2, 20)(random);
  }
};

/// Seconds that `n` batches of `n_tokens` take.
double run(ThreadGovernor& governor, Machine& machine, std::int32_t n, std::int32_t n_tokens = 4) {
  double seconds = 0;
  for (std::int32_t i = 0; i < n; ++i) {
    const double took = machine.batch(governor.n_threads());
    governor.observe(n_tokens, took);
    seconds += took;
  }
  return seconds;
}

}  // namespace

TEST(governor_keeps_all_threads_on_a_quiet_machine) {
  for (const std::int32_t cpus : {2, 3, 4, 8, 16, 64}) {
    ThreadGovernor governor(cpus);
    Machine machine{cpus};
    run(governor, machine, 500);
    const double took = run(governor, machine, 5000);
    CHECK(took < 1.03 * 5000 * machine.work / cpus);
  }
}

TEST(governor_gives_way_and_comes_back) {
  ThreadGovernor governor(2);
  Machine machine{2};
  run(governor, machine, 200);
  machine.free = 1;
  run(governor, machine, 50);
  CHECK(run(governor, machine, 2000) < 1.25 * 2000 * machine.work);
  machine.free = 2;
  run(governor, machine, 3000);
  CHECK(run(governor, machine, 2000) < 1.05 * 2000 * machine.work / 2);
}

TEST(governor_finds_the_free_cpus_of_a_busy_machine) {
  for (const std::int32_t free : {1, 2, 5, 11}) {
    ThreadGovernor governor(16);
    Machine machine{free};
    run(governor, machine, 500);
    CHECK(run(governor, machine, 2000) < 1.5 * 2000 * machine.work / free);
  }
}

TEST(governor_compares_like_with_like_only) {
  ThreadGovernor governor(2);
  Machine machine{2};
  for (std::int32_t i = 0; i < 1000; ++i)
    governor.observe(1 + i % 7, machine.batch(governor.n_threads()));
  CHECK_EQ(governor.n_threads(), 2);
}

TEST(governor_of_one_thread_has_nothing_to_choose) {
  ThreadGovernor governor(1);
  Machine machine{1};
  run(governor, machine, 100);
  CHECK_EQ(governor.n_threads(), 1);
}
