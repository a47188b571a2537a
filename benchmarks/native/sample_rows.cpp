// What it takes to sample the rows of a step: one after the other, or by several threads. The rows
// cost nothing to make: they are there before.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "sampler.h"
#include "workers.h"

namespace {

using Clock = std::chrono::steady_clock;

// Copies of all rows that are used in turn, so that a row is no more in a cache than it is after a
// decode.
constexpr std::size_t kCopies = 4;
// Time between two steps. The other threads fall asleep in it, as they do during a decode.
constexpr auto kDecode = std::chrono::milliseconds(1);

pronk::SamplingParams parameters(const std::string& chain) {
  pronk::SamplingParams params;
  params.seed = 1;
  if (chain == "greedy") {
    params.temperature = 0;
  } else if (chain == "penalties") {
    params.repeat_penalty = 1.1f;
  } else if (chain == "plain") {  // draws from the whole row
    params.top_k = 0;
    params.top_p = 1;
    params.min_p = 0;
  } else if (chain != "default") {
    std::fprintf(stderr, "chain: got %s, expected default, greedy, penalties or plain\n",
                 chain.c_str());
    std::exit(2);
  }
  return params;
}

// Logits like a model's: most lie far below a few.
std::vector<float> row_of_logits(std::size_t n_vocab, std::mt19937& random) {
  std::normal_distribution<float> noise(0.0f, 2.5f);
  std::vector<float> row(n_vocab);
  for (float& logit : row) logit = noise(random);
  for (int i = 0; i < 20; ++i) row[random() % n_vocab] += 10.0f + noise(random);
  return row;
}

void wait(Clock::duration time) {
  for (const auto end = Clock::now() + time; Clock::now() < end;) {
  }
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

// usage: sample_rows CHAIN ROWS N_VOCAB THREADS STEPS
// Prints the medians in seconds: a step on one thread, a step on several.
int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: sample_rows CHAIN ROWS N_VOCAB THREADS STEPS\n");
    return 2;
  }
  const pronk::SamplingParams params = parameters(argv[1]);
  const std::size_t n_rows = std::stoul(argv[2]);
  const std::size_t n_vocab = std::stoul(argv[3]);
  const std::size_t n_threads = std::stoul(argv[4]);
  const std::size_t n_steps = std::stoul(argv[5]);

  std::mt19937 random(1);
  std::vector<std::vector<float>> rows;
  for (std::size_t i = 0; i < kCopies * n_rows; ++i) {
    rows.push_back(row_of_logits(n_vocab, random));
  }
  std::vector<pronk::Sampler> samplers;
  for (std::size_t i = 0; i < n_rows; ++i) {
    samplers.emplace_back(params, static_cast<std::int32_t>(n_vocab), std::vector<pronk::Token>());
  }
  pronk::Workers workers(n_threads);
  std::size_t copy = 0;
  const auto choose = [&](std::size_t i) {
    samplers[i].accept(samplers[i].sample(rows[copy * n_rows + i], 0, nullptr));
  };

  std::vector<double> serial;
  std::vector<double> parallel;
  for (std::size_t step = 0; step < 2 * n_steps; ++step) {
    copy = step / 2 % kCopies;
    wait(kDecode);
    const auto begin = Clock::now();
    if (step % 2 == 0) {
      for (std::size_t i = 0; i < n_rows; ++i) choose(i);
    } else {
      workers.run(n_rows, choose);
    }
    const std::chrono::duration<double> took = Clock::now() - begin;
    (step % 2 == 0 ? serial : parallel).push_back(took.count());
  }
  std::printf("%.9g %.9g\n", median(serial), median(parallel));
}
