// A scheduler over a scripted model whose decode loop has no thread: a test makes every step
// itself.
#pragma once

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "decode_loop.h"
#include "pool.h"
#include "pronk/scheduler.h"
#include "pronk/testing.h"
#include "scheduler_state.h"

namespace by_hand {

using Tokens = std::vector<pronk::Token>;

inline Tokens tokens(const std::string& text) { return {text.begin(), text.end()}; }

inline pronk::GenerationParams greedy(std::int32_t max_tokens) {
  pronk::GenerationParams params;
  params.sampling.temperature = 0;
  params.max_tokens = max_tokens;
  return params;
}

/// An event loop that sleeps on the mailbox would wake.
inline bool readable(const pronk::Mailbox& mailbox) {
  pollfd fd{mailbox.fd(), POLLIN, 0};
  return poll(&fd, 1, 0) == 1;
}

/// The delays of a model move the clock, so that steps take an exact time.
inline pronk::testing::ScriptedOptions with_clock(pronk::testing::ScriptedOptions options,
                                                  const pronk::testing::ManualClock& clock) {
  options.clock = clock;
  return options;
}

struct Scheduler {
  Scheduler(pronk::testing::ScriptedOptions model_options, pronk::SchedulerOptions options,
            const pronk::PoolOptions& pool)
      : model(with_clock(std::move(model_options), clock)) {
    options.clock = clock.clock();
    state = std::make_shared<pronk::SchedulerState>(options);
    loop = pronk::make_pool(model.engine(), pool, options.max_concurrent, options.clock,
                            state->trace, std::make_shared<std::atomic<bool>>(false));
    state->adopt_pool(model.engine(), loop);
    scheduler = std::make_unique<pronk::InferenceScheduler>(state);
  }

  pronk::testing::ManualClock clock;
  pronk::testing::ScriptedModel model;
  std::shared_ptr<pronk::SchedulerState> state;
  std::shared_ptr<pronk::DecodeLoop> loop;
  std::unique_ptr<pronk::InferenceScheduler> scheduler;

  /// Steps until there is nothing to do; false if that takes more than `most` steps.
  bool run(int most = 10000) {
    for (int i = 0; i < most; ++i) {
      if (!loop->step()) return true;
    }
    return false;
  }

  /// What differs between the sequences as the pool knows them and as the contexts hold them; empty
  /// when nothing does, or while a context waits for being replaced.
  std::string difference() const {
    const auto held = model.sequences();
    std::size_t known = 0;
    for (const auto& sequence : loop->sequences().sequences()) {
      if (loop->sequences().broken(sequence->context)) return {};
      if (sequence->tokens.empty()) continue;
      ++known;
      const bool found = std::any_of(held.begin(), held.end(), [&](const auto& entry) {
        return entry.first.second == sequence->id && entry.second == sequence->tokens;
      });
      if (!found) {
        return "sequence " + std::to_string(sequence->id) + " of context " +
               std::to_string(sequence->context) +
               ": the context does not hold the tokens that the pool knows";
      }
    }
    const auto cells = static_cast<std::uint64_t>(model.cells_used());
    if (loop->sequences().cells_used() != cells) {
      return "the pool counts " + std::to_string(loop->sequences().cells_used()) +
             " cells, the contexts " + std::to_string(cells);
    }
    if (known != held.size()) {
      return "the pool knows " + std::to_string(known) + " filled sequences, the contexts hold " +
             std::to_string(held.size());
    }
    return {};
  }
};

}  // namespace by_hand
