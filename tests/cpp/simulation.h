// A seeded simulation of the whole scheduler: gate, permits, decode loop and sequence pool over a
// scripted model and a clock that stands still, everything on one thread, so that a seed repeats a
// run exactly.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace simulation {

/// What was found wrong; the message says at which step.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Report {
  std::uint64_t decodes = 0;
  std::uint64_t generations = 0;
  std::uint64_t completed = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t failed = 0;
  std::uint64_t reused_tokens = 0;
  std::uint64_t permits = 0;
};

/// Makes `steps` random steps, then ends the scheduler, drained or not. After each step everything
/// is compared with a reference model of the gate and with what the scripted model says. Throws
/// Failure.
Report run(std::uint64_t seed, std::int64_t steps);

}  // namespace simulation
