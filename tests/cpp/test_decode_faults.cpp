// The decode loop when something goes wrong: who is concerned ends or is tried again, nobody gets a
// wrong text, and afterwards everything works as on the first day.
#include <string>
#include <vector>

#include "check.h"
#include "decode_rig.h"
#include "pronk/error.h"

namespace {

using namespace decode_rig;
using pronk::testing::FaultKind;
using pronk::testing::FaultPoint;

}  // namespace

TEST(loop_survives_every_status_at_every_call) {
  // W05 and W07: each failure at each of the first calls, with any part of the batch applied.
  // Nobody gets a wrong text, and afterwards everything works as on the first day.
  over_all([](Shape shape) {
    shape.permits = 3;
    for (const FaultKind kind : {FaultKind::kNoSlot, FaultKind::kAborted, FaultKind::kInvalidBatch,
                                 FaultKind::kNoMemory, FaultKind::kFailed}) {
      for (const std::uint64_t call : {1, 2, 3, 5, 9}) {
        for (const int times : {1, 2, 4}) {
          for (const int applied : {0, 1, 5}) {
            const bool nothing = kind == FaultKind::kNoSlot || kind == FaultKind::kInvalidBatch;
            if (nothing && applied > 0) continue;
            Rig rig(shape);
            rig.model.add_fault({.kind = kind, .call = call, .times = times, .applied = applied});
            std::vector<std::string> prompts = {"shared one", "shared two", "other",
                                                "shared one and more"};
            std::vector<Generation> generations;
            for (const auto& prompt : prompts)
              generations.push_back(rig.generate(prompt, greedy(8)));
            int steps = 0;
            while (rig.loop->step()) {
              if (!CHECK(++steps < 1000)) break;
              rig.check_sound();
            }
            for (std::size_t i = 0; i < prompts.size(); ++i) {
              REQUIRE(generations[i].done());
              try {
                CHECK_EQ(generations[i].result().text, rig.expected(prompts[i], 8));
              } catch (const pronk::BackendError&) {
                CHECK(times > 1);  // one failure is forgiven
                const auto said = generations[i].text();
                CHECK_EQ(said, rig.expected(prompts[i], static_cast<int>(said.size())));
              }
            }
            rig.check_quiet();
            // The canary.
            rig.model.clear_faults();
            auto canary = rig.generate("shared one", greedy(16));
            CHECK(rig.run());
            CHECK_EQ(text_of(canary), rig.expected("shared one", 16));
            CHECK(rig.scheduler->statistics().healthy);
            rig.check_quiet();
          }
        }
      }
    }
  });
}

TEST(loop_survives_exceptions) {
  // C25: an exception loses the generations of its batch, nothing else; the context is made anew.
  over_all([](const Shape& shape) {
    for (const FaultKind kind :
         {FaultKind::kRuntimeError, FaultKind::kBadAlloc, FaultKind::kForeignException}) {
      Rig rig(shape);
      const int contexts = rig.model.counters().backends_made;
      auto before = rig.generate("keeps", greedy(3));
      CHECK(rig.run());
      rig.model.add_fault({.kind = kind, .call = rig.model.counters().decode_calls + 4});
      std::vector<Generation> generations;
      for (const char* prompt : {"a", "b", "c"})
        generations.push_back(rig.generate(prompt, greedy(10)));
      CHECK(rig.run());
      int failed = 0;
      const char* prompts[] = {"a", "b", "c"};
      for (std::size_t i = 0; i < 3; ++i) {
        REQUIRE(generations[i].done());
        try {
          CHECK_EQ(generations[i].result().text, rig.expected(prompts[i], 10));
        } catch (const pronk::BackendError&) {
          ++failed;
        }
      }
      CHECK(failed >= 1);
      if (std::string(shape.layout.layout) == "isolated") CHECK_EQ(failed, 1);
      auto after = rig.generate("keeps", greedy(3));
      CHECK(rig.run());
      CHECK_EQ(text_of(after), rig.expected("keeps", 3));
      CHECK_EQ(rig.model.counters().backends_alive, contexts);
      CHECK(rig.scheduler->statistics().healthy);
      rig.check_quiet();
    }
  });
}

TEST(loop_reports_no_reuse_of_a_lost_context) {
  Shape shape;
  shape.permits = 1;
  Rig rig(shape);
  auto cached = rig.generate("a long enough prompt", greedy(3));
  CHECK(rig.run());
  rig.model.add_fault({.kind = FaultKind::kRuntimeError});
  auto lost = rig.generate("something else", greedy(3));
  CHECK(rig.run());
  CHECK_THROWS(pronk::BackendError, lost.result());
  // The context is gone, and what it held.
  auto again = rig.generate("a long enough prompt", greedy(3));
  CHECK(rig.run());
  CHECK_EQ(text_of(again), rig.expected("a long enough prompt", 3));
  CHECK_EQ(again.result().usage.cached_tokens, 0);
  rig.check_quiet();
}

TEST(loop_survives_a_context_that_cannot_be_made_again) {
  over_all([](const Shape& shape) {
    for (const FaultKind kind : {FaultKind::kNoMemory, FaultKind::kFailed, FaultKind::kBadAlloc,
                                 FaultKind::kForeignException}) {
      Rig rig(shape);
      const int contexts = rig.model.counters().backends_alive;
      rig.model.add_fault({.kind = FaultKind::kRuntimeError, .times = contexts});
      rig.model.add_fault({.point = FaultPoint::kMakeBackend, .kind = kind, .times = -1});
      std::vector<Generation> generations;
      for (int i = 0; i < 8; ++i)
        generations.push_back(rig.generate(std::string(1, static_cast<char>('a' + i)), greedy(4)));
      CHECK(rig.run());
      for (const auto& g : generations) {
        REQUIRE(g.done());
        CHECK_THROWS(pronk::BackendError, g.result());
      }
      CHECK(!rig.scheduler->statistics().healthy);
      rig.check_quiet();
      // As soon as there is memory again, it goes on.
      rig.model.clear_faults();
      auto canary = rig.generate("canary", greedy(6));
      CHECK(rig.run());
      CHECK_EQ(text_of(canary), rig.expected("canary", 6));
      CHECK(rig.scheduler->statistics().healthy);
      rig.check_quiet();
    }
  });
}

TEST(loop_survives_removals_and_copies_that_fail) {
  over_all([](const Shape& shape) {
    for (const FaultPoint point : {FaultPoint::kSeqRemove, FaultPoint::kSeqCopy}) {
      for (const FaultKind kind :
           {FaultKind::kReturnFalse, FaultKind::kRuntimeError, FaultKind::kForeignException}) {
        if (point == FaultPoint::kSeqCopy && kind == FaultKind::kReturnFalse) continue;
        for (const std::uint64_t call : {1, 2, 3, 4, 6}) {
          for (const int times : {1, 3}) {
            Rig rig(shape);
            rig.model.add_fault({.point = point, .kind = kind, .call = call, .times = times});
            std::vector<std::string> prompts;
            std::vector<Generation> generations;
            for (int i = 0; i < 10; ++i) {
              prompts.push_back("the same twenty tokens " + std::to_string(i % 7));
              generations.push_back(rig.generate(prompts.back(), greedy(6)));
            }
            CHECK(rig.run());
            for (std::size_t i = 0; i < prompts.size(); ++i) {
              REQUIRE(generations[i].done());
              CHECK_EQ(text_of(generations[i]), rig.expected(prompts[i], 6));
            }
            rig.check_quiet();
          }
        }
      }
    }
  });
}

TEST(loop_window_moved_by_a_failed_chunk) {
  // A chunk that fails half-way has pushed older cells out of the window: what is left is no state
  // to go on from.
  for (int applied = 0; applied <= 8; ++applied) {
    Shape shape;
    shape.kind = MemoryKind::kSlidingWindow;
    shape.n_batch = 8;
    for (int n_prompt = 9; n_prompt < 20; ++n_prompt) {
      Rig rig(shape);
      rig.model.add_fault({.kind = FaultKind::kFailed, .call = 2, .applied = applied});
      const std::string prompt =
          std::string("abcdefghijklmnopqrst").substr(0, static_cast<std::size_t>(n_prompt));
      auto generation = rig.generate(prompt, greedy(8));
      CHECK(rig.run());
      CHECK_EQ(text_of(generation), rig.expected(prompt, 8));
      rig.check_quiet();
    }
  }
}

TEST(loop_logits_that_cannot_be_sampled) {
  for (const FaultKind kind : {FaultKind::kNanLogits, FaultKind::kImpossibleLogits}) {
    Rig rig;
    auto a = rig.generate("first", greedy(10));
    rig.loop->step();
    rig.model.add_fault({.kind = kind});
    rig.loop->step();
    CHECK(a.done());
    CHECK_THROWS(pronk::BackendError, a.result());
    auto b = rig.generate("first", greedy(10));
    CHECK(rig.run());
    CHECK_EQ(text_of(b), rig.expected("first", 10));
    rig.check_quiet();
  }
}
