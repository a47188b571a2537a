// What a chunk costs, from noisy times.
#include <cmath>
#include <random>

#include "check.h"
#include "chunk_cost.h"

using pronk::ChunkCost;

namespace {

bool is_near(double value, double wanted, double off) { return std::abs(value - wanted) <= off; }

}  // namespace

TEST(chunk_cost_finds_the_line) {
  std::mt19937_64 random(check::seed());
  std::uniform_real_distribution<> noise(0.95, 1.05);
  for (const double fixed : {0.0, 0.005, 0.05}) {
    ChunkCost cost;
    CHECK(!cost.known());
    for (int i = 0; i < 500; ++i) {
      const int n = 1 + static_cast<int>(random() % 256);
      cost.observe(n, noise(random) * (fixed + n * 0.001));
    }
    CHECK(cost.known());
    CHECK(is_near(cost.per_token(), 0.001, 0.0001));
    CHECK(is_near(cost.fixed(), fixed, 0.01));
  }
}

TEST(chunk_cost_of_one_size_is_half_fixed) {
  ChunkCost cost;
  for (int i = 0; i < 100; ++i) cost.observe(50, 0.02);
  CHECK(is_near(cost.per_token() * 50, 0.01, 1e-9));
  CHECK(is_near(cost.fixed(), 0.01, 1e-9));
}

TEST(chunk_cost_remembers_large_chunks_among_small_ones) {
  ChunkCost cost;
  for (int i = 0; i < 10; ++i) cost.observe(256, 0.02 + 0.256);
  for (int i = 0; i < 100; ++i) cost.observe(4, 0.024);
  CHECK(is_near(cost.per_token(), 0.001, 1e-6));
  CHECK(is_near(cost.fixed(), 0.02, 1e-4));
}

TEST(chunk_cost_is_never_free_nor_negative) {
  for (const double seconds : {0.0, 1e-300, 1e12}) {
    ChunkCost cost;
    for (const int n : {1, 512, 3, 512, 1}) {
      cost.observe(n, seconds);
      CHECK(cost.per_token() > 0);
      CHECK(cost.fixed() >= 0);
    }
  }
  // Larger chunks that took less than small ones.
  ChunkCost cost;
  for (int i = 0; i < 100; ++i) cost.observe(1 + i, 1.0 / (1 + i));
  CHECK(cost.per_token() > 0);
  CHECK(cost.fixed() >= 0);
}
