// Pools of all layouts and kinds of memory, stepped by hand, for the tests of the decode loop.
#pragma once

#include <string>
#include <vector>

#include "by_hand.h"
#include "check.h"
#include "pronk/testing.h"

namespace decode_rig {

using by_hand::greedy;
using by_hand::tokens;
using by_hand::Tokens;
using pronk::Generation;
using pronk::GenerationParams;
using pronk::MemoryKind;

inline constexpr MemoryKind kAllKinds[] = {MemoryKind::kPlain, MemoryKind::kSlidingWindow,
                                           MemoryKind::kRecurrent, MemoryKind::kHybrid};

struct Layout {
  const char* layout;
  const char* kv;
};
inline constexpr Layout kAllLayouts[] = {
    {"isolated", "auto"}, {"batched", "shared"}, {"batched", "split"}};

struct Shape {
  MemoryKind kind = MemoryKind::kPlain;
  Layout layout = {"batched", "shared"};
  int permits = 4;
  int n_ctx = 64;
  int n_batch = 32;
  int n_cached = 4;
};

struct Rig : by_hand::Scheduler {
  explicit Rig(const Shape& shape = {})
      : Scheduler(
            [&] {
              pronk::testing::ScriptedOptions options;
              options.memory_kind = shape.kind;
              options.n_swa = shape.kind == MemoryKind::kSlidingWindow ? 6 : 0;
              return options;
            }(),
            [&] {
              pronk::SchedulerOptions options;
              options.max_concurrent = shape.permits;
              return options;
            }(),
            [&] {
              pronk::PoolOptions options;
              options.layout = shape.layout.layout;
              options.kv = shape.layout.kv;
              options.n_ctx = shape.n_ctx;
              options.n_batch = shape.n_batch;
              options.n_cached = shape.n_cached;
              return options;
            }()) {}

  Generation generate(const std::string& prompt, const GenerationParams& params) {
    return scheduler->generate(tokens(prompt), params);
  }

  std::string expected(const std::string& prompt, int n) const {
    const Tokens said = model.expected(tokens(prompt), n);
    return {said.begin(), said.end()};
  }

  /// All is quiet: no permit held, contexts and pool agree, nothing was done that would have
  /// aborted.
  void check_quiet() {
    CHECK_EQ(scheduler->active_count(), 0);
    CHECK_EQ(scheduler->waiting_count(), 0);
    check_sound();
    const auto s = scheduler->statistics();
    CHECK_EQ(s.running, 0);
    CHECK_EQ(s.generations, s.completed + s.cancelled + s.failed);
  }
  void check_sound() {
    CHECK_EQ(difference(), "");
    CHECK_EQ(model.violations(), std::vector<std::string>{});
  }
};

/// Every shape that a test runs over.
template <class Test>
void over_all(Test&& test) {
  for (const MemoryKind kind : kAllKinds) {
    for (const Layout& layout : kAllLayouts) {
      Shape shape;
      shape.kind = kind;
      shape.layout = layout;
      test(shape);
    }
  }
}

inline std::string text_of(const Generation& generation) {
  CHECK(generation.done());
  return generation.result().text;
}

}  // namespace decode_rig
