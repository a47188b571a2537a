// Runs the simulation: simulation [--seed N] [--seeds K] [--steps M]. Without --seed it draws one.
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string_view>

#include "simulation.h"

namespace {

bool parse(std::string_view text, std::uint64_t& value) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && stop == text.data() + text.size();
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t seed = std::random_device{}();
  std::uint64_t seeds = 1;
  std::uint64_t steps = 10000;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    std::uint64_t* value = name == "--seed"    ? &seed
                           : name == "--seeds" ? &seeds
                           : name == "--steps" ? &steps
                                               : nullptr;
    if (value == nullptr || i + 1 == argc || !parse(argv[i + 1], *value)) {
      std::fprintf(stderr, "usage: %s [--seed N] [--seeds K] [--steps M]\n", argv[0]);
      return 2;
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  simulation::Report sum;
  for (std::uint64_t i = 0; i < seeds; ++i) {
    try {
      const auto report = simulation::run(seed + i, static_cast<std::int64_t>(steps));
      sum.decodes += report.decodes;
      sum.generations += report.generations;
      sum.completed += report.completed;
      sum.cancelled += report.cancelled;
      sum.failed += report.failed;
      sum.reused_tokens += report.reused_tokens;
      sum.permits += report.permits;
    } catch (const std::exception& error) {
      std::printf("FAILED with --seed %llu --steps %llu\n%s\n",
                  static_cast<unsigned long long>(seed + i), static_cast<unsigned long long>(steps),
                  error.what());
      return 1;
    }
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const auto n = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf("seeds %llu to %llu, %llu steps each, %.0f steps/s\n", n(seed), n(seed + seeds - 1),
              n(steps), static_cast<double>(seeds * steps) / seconds);
  std::printf("%llu permits, %llu generations: %llu completed, %llu cancelled, %llu failed\n",
              n(sum.permits), n(sum.generations), n(sum.completed), n(sum.cancelled),
              n(sum.failed));
  std::printf("%llu decodes, %llu tokens reused\n", n(sum.decodes), n(sum.reused_tokens));
  return 0;
}
