// The decode loop, stepped by hand over a scripted model: greedy text is what the model says to the prompt alone,
// whatever else runs, ends, fails or is reused beside it.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "by_hand.h"
#include "check.h"
#include "pronk/error.h"

namespace {

using namespace std::chrono_literals;
using by_hand::greedy;
using by_hand::tokens;
using by_hand::Tokens;
using pronk::FinishReason;
using pronk::Generation;
using pronk::GenerationParams;
using pronk::InferencePermit;
using pronk::MemoryKind;
using pronk::PoolOptions;
using pronk::testing::Fault;
using pronk::testing::FaultKind;
using pronk::testing::FaultPoint;
using pronk::testing::ScriptedOptions;

constexpr MemoryKind kAllKinds[] = {MemoryKind::kPlain, MemoryKind::kSlidingWindow, MemoryKind::kRecurrent,
                                    MemoryKind::kHybrid};

struct Layout {
  const char* layout;
  const char* kv;
};
constexpr Layout kAllLayouts[] = {{"isolated", "auto"}, {"batched", "shared"}, {"batched", "split"}};

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
              ScriptedOptions options;
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
              PoolOptions options;
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

  /// All is quiet: no permit held, contexts and pool agree, nothing was done that would have aborted.
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

std::string text_of(const Generation& generation) {
  CHECK(generation.done());
  return generation.result().text;
}

}  // namespace

TEST(loop_says_what_the_model_says) {
  over_all([](const Shape& shape) {
    Rig rig(shape);
    std::vector<std::string> prompts;
    std::vector<Generation> generations;
    for (int i = 0; i < 12; ++i) {
      prompts.push_back(std::string(static_cast<std::size_t>(i % 5 + 1), static_cast<char>('a' + i)));
      generations.push_back(rig.generate(prompts.back(), greedy(10)));
    }
    CHECK_EQ(rig.scheduler->active_count(), 4);
    CHECK_EQ(rig.scheduler->waiting_count(), 8);
    CHECK(rig.run());
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const auto done = generations[i].result();
      CHECK_EQ(done.text, rig.expected(prompts[i], 10));
      CHECK_EQ(done.finish_reason, FinishReason::kLength);
      CHECK_EQ(done.usage.completion_tokens, 10);
      CHECK_EQ(done.usage.prompt_tokens, static_cast<int>(prompts[i].size()));
    }
    rig.check_quiet();
    const auto s = rig.scheduler->statistics();
    CHECK_EQ(s.completed, 12u);
    CHECK_EQ(s.completion_tokens, 120u);
    CHECK_EQ(s.evaluated_tokens, rig.model.counters().items);
    CHECK_EQ(s.prompt_tokens, s.reused_tokens + s.evaluated_tokens - 12 * 9);  // the last token is not evaluated
  });
}

TEST(loop_ends_at_the_end_token_and_at_stop_strings) {
  Rig rig;
  rig.model.script("hello", "one two three");
  auto whole = rig.generate("hello", greedy(50));
  auto params = greedy(50);
  params.stop = {"two"};
  auto stopped = rig.generate("hello", params);
  params = greedy(5);
  params.stop = {"two"};
  auto held_back = rig.generate("hello", params);  // "one t" could still have become a stop
  CHECK(rig.run());
  CHECK_EQ(text_of(whole), "one two three");
  CHECK_EQ(whole.result().finish_reason, FinishReason::kStop);
  CHECK_EQ(text_of(stopped), "one ");
  CHECK_EQ(stopped.result().finish_reason, FinishReason::kStop);
  CHECK_EQ(text_of(held_back), "one t");
  CHECK_EQ(held_back.result().finish_reason, FinishReason::kLength);
  rig.check_quiet();
}

TEST(loop_max_tokens_zero_and_full_context) {
  over_all([](Shape shape) {
    shape.n_ctx = 16;
    Rig rig(shape);
    auto nothing = rig.generate("abc", greedy(0));
    GenerationParams endless = greedy(1);
    endless.max_tokens.reset();
    auto full = rig.generate("abc", endless);
    auto clamped = rig.generate("0123456789abcde", greedy(100));  // one token of room
    CHECK(rig.run());
    CHECK_EQ(text_of(nothing), "");
    CHECK_EQ(nothing.result().finish_reason, FinishReason::kLength);
    CHECK_EQ(text_of(full), rig.expected("abc", 13));
    CHECK_EQ(full.result().finish_reason, FinishReason::kLength);
    CHECK_EQ(text_of(clamped), rig.expected("0123456789abcde", 1));
    CHECK_THROWS(pronk::ContextOverflowError, rig.generate("0123456789abcdef", greedy(1)));
    CHECK_THROWS(pronk::InvalidArgumentError, rig.generate("", greedy(1)));
    CHECK_THROWS(pronk::InvalidArgumentError, rig.scheduler->generate(Tokens{-1}, greedy(1)));
    CHECK_THROWS(pronk::InvalidArgumentError, rig.scheduler->generate(Tokens{1 << 30}, greedy(1)));
    rig.check_quiet();
  });
}

TEST(loop_multi_turn_evaluates_new_tokens_only) {
  // P03: the answer is a part of the prefix that the next turn starts from.
  over_all([](Shape shape) {
    const bool isolated = std::string(shape.layout.layout) == "isolated";
    shape.n_batch = isolated ? 4 : 32;
    Rig rig(shape);
    std::string chat = "sys ";
    for (int turn = 0; turn < 5; ++turn) {
      const int last_prompt = static_cast<int>(chat.size()) - 6;
      chat += "q" + std::to_string(turn);
      auto generation = rig.generate(chat, greedy(6));
      CHECK(rig.run());
      CHECK_EQ(text_of(generation), rig.expected(chat, 6));
      // The last token that was said is not evaluated before the next turn.
      const auto usage = generation.result().usage;
      if (isolated) {
        // Only what was evaluated in whole chunks has the bits of a fresh evaluation; and to that point the memory has
        // to be cut.
        const bool cuttable = shape.kind == MemoryKind::kPlain;
        CHECK_EQ(usage.cached_tokens, turn == 0 || !cuttable ? 0 : last_prompt / 4 * 4);
      } else {
        CHECK_EQ(usage.prompt_tokens - usage.cached_tokens, turn == 0 ? usage.prompt_tokens : 3);
      }
      chat += text_of(generation);
    }
    rig.check_quiet();
    if (!isolated) CHECK_EQ(rig.scheduler->statistics().prefix_hits, 4u);
  });
}

TEST(loop_evaluates_a_common_prefix_once) {
  for (const MemoryKind kind : kAllKinds) {
    for (const bool together : {true, false}) {
      Shape shape;
      shape.kind = kind;
      shape.permits = 6;
      shape.n_batch = 16;
      Rig rig(shape);
      const std::string system = "you are a helpful assistant and";  // 31 tokens: two batches
      std::vector<Generation> generations;
      for (int i = 0; i < 6; ++i) {
        generations.push_back(rig.generate(system + std::string(1, static_cast<char>('A' + i)), greedy(4)));
        if (!together) rig.loop->step();
      }
      CHECK(rig.run());
      for (int i = 0; i < 6; ++i) {
        CHECK_EQ(text_of(generations[i]), rig.expected(system + std::string(1, static_cast<char>('A' + i)), 4));
      }
      rig.check_quiet();
      // The common part once, then a last prompt token and three completion tokens for each. Who comes late may find
      // the rest of it too short to wait for.
      if (!together) continue;
      CHECK_EQ(rig.model.counters().items, system.size() + 6 * 4);
      CHECK_EQ(rig.scheduler->statistics().reused_tokens, 5 * system.size());
    }
  }
}

TEST(loop_prefix_leader_may_end_at_any_moment) {
  // Others wait for the prefix that one evaluates. It is cancelled, or fails: they go on by themselves.
  const std::string system = "a system prompt that is quite a bit longer than one batch";
  for (int at = 0; at < 12; ++at) {
    for (const bool fail : {false, true}) {
      Shape shape;
      shape.n_batch = 8;
      shape.n_ctx = 128;
      Rig rig(shape);
      std::vector<Generation> generations;
      for (const char c : {'A', 'B', 'C', 'D'}) generations.push_back(rig.generate(system + c, greedy(4)));
      for (int i = 0; i < at; ++i) rig.loop->step();
      if (fail) {
        rig.model.add_fault({.kind = FaultKind::kRuntimeError});
      } else {
        generations[0].cancel();
      }
      CHECK(rig.run());
      int good = 0;
      for (int i = 0; i < 4; ++i) {
        REQUIRE(generations[i].done());
        try {
          const auto done = generations[i].result();
          if (done.finish_reason == FinishReason::kCancelled) continue;
          CHECK_EQ(done.text, rig.expected(system + static_cast<char>('A' + i), 4));
          ++good;
        } catch (const pronk::BackendError&) {
        }
      }
      // An exception takes those in the same batch with it, a cancel nobody.
      if (!fail) CHECK(good >= 3);
      rig.check_quiet();
    }
  }
}

TEST(loop_without_cache_leaves_nothing) {
  over_all([](const Shape& shape) {
    Rig rig(shape);
    auto params = greedy(4);
    params.cache = false;
    auto a = rig.generate("a secret that must not stay", params);
    rig.loop->step();
    auto b = rig.generate("a secret that must not stay", params);
    auto c = rig.generate("a secret that must not stay", greedy(4));
    CHECK(rig.run());
    for (const auto* g : {&a, &b, &c}) {
      CHECK_EQ(text_of(*g), rig.expected("a secret that must not stay", 4));
      CHECK_EQ(g->result().usage.cached_tokens, 0);
    }
    CHECK_EQ(rig.scheduler->statistics().cached_sequences, 1);
    rig.check_quiet();
  });
}

TEST(loop_scopes_share_nothing) {
  Rig rig;
  auto params = greedy(4);
  params.cache_scope = "one";
  auto a = rig.generate("the same long system prompt", params);
  params.cache_scope = "two";
  auto b = rig.generate("the same long system prompt", params);
  CHECK(rig.run());
  CHECK_EQ(a.result().usage.cached_tokens + b.result().usage.cached_tokens, 0);
  auto again = rig.generate("the same long system prompt", params);
  CHECK(rig.run());
  CHECK(again.result().usage.cached_tokens > 0);
  rig.check_quiet();
}

TEST(loop_streams_keep_pace_beside_long_prompts) {
  // F01: a stream gets its token in every step, and every prompt advances.
  Shape shape;
  shape.n_ctx = 4096;
  shape.n_batch = 64;
  Rig rig(shape);
  rig.model.set_delay(1ms, 10us);
  GenerationParams endless = greedy(500);
  auto stream = rig.generate("a", endless);
  rig.loop->step();
  rig.model.record(true);
  std::vector<Generation> prompts;
  for (const char c : {'x', 'y', 'z'}) prompts.push_back(rig.generate(std::string(600, c), greedy(1)));
  std::map<std::int32_t, int> idle;
  std::size_t seen_batches = 0;
  for (int i = 0; i < 400 && !std::all_of(prompts.begin(), prompts.end(), [](auto& g) { return g.done(); }); ++i) {
    const auto before = stream.text().size();
    rig.loop->step();
    if (!CHECK_EQ(stream.text().size(), before + 1)) break;
    const auto batches = rig.model.batches();
    std::set<std::int32_t> served;
    for (; seen_batches < batches.size(); ++seen_batches) {
      CHECK(batches[seen_batches].items.size() <= 64);
      for (const auto& item : batches[seen_batches].items) served.insert(item.seq);
    }
    CHECK(served.size() >= 2);
  }
  for (const auto& g : prompts) CHECK(g.done());
  stream.cancel();
  CHECK(rig.run());
  rig.check_quiet();
}

TEST(loop_more_lanes_than_a_batch_holds) {
  // C05: 64 lanes decode at once, a batch holds 16 tokens.
  for (const Layout& layout : kAllLayouts) {
    Shape shape;
    shape.layout = layout;
    shape.permits = 64;
    shape.n_batch = 16;
    shape.n_cached = 0;
    Rig rig(shape);
    rig.model.record(true);
    std::vector<Generation> generations;
    for (int i = 0; i < 64; ++i) generations.push_back(rig.generate(std::string(1, static_cast<char>(' ' + i)), greedy(5)));
    CHECK(rig.run());
    for (int i = 0; i < 64; ++i) {
      CHECK_EQ(text_of(generations[i]), rig.expected(std::string(1, static_cast<char>(' ' + i)), 5));
    }
    for (const auto& batch : rig.model.batches()) CHECK(batch.items.size() <= 16);
    rig.check_quiet();
  }
}

TEST(loop_neighbours_change_nothing) {
  // W03: A runs 40 tokens; B joins at its token 8, C at 16; B leaves at 24.
  over_all([](const Shape& shape) {
    Rig rig(shape);
    auto a = rig.generate("first", greedy(40));
    std::optional<Generation> b, c;
    while (!a.done()) {
      const auto n = a.text().size();
      if (n >= 8 && !b) b = rig.generate("firstly", greedy(50));
      if (n >= 16 && !c) c = rig.generate("fir", greedy(30));
      if (n >= 24) b->cancel();
      if (!CHECK(rig.loop->step())) break;
      rig.check_sound();
    }
    CHECK(rig.run());
    CHECK_EQ(text_of(a), rig.expected("first", 40));
    CHECK_EQ(text_of(*c), rig.expected("fir", 30));
    const auto cut = b->result();
    CHECK_EQ(cut.finish_reason, FinishReason::kCancelled);
    CHECK_EQ(cut.text, rig.expected("firstly", static_cast<int>(cut.text.size())));
    rig.check_quiet();
  });
}

TEST(loop_a_hog_ends_alone) {
  // O03: one request runs to the end of its context, the others never notice.
  for (const Layout& layout : kAllLayouts) {
    Shape shape;
    shape.layout = layout;
    shape.n_ctx = 48;
    Rig rig(shape);
    GenerationParams endless = greedy(1);
    endless.max_tokens.reset();
    auto hog = rig.generate("hog", endless);
    std::vector<Generation> small;
    for (int i = 0; i < 30; ++i) small.push_back(rig.generate("small " + std::to_string(i), greedy(12)));
    CHECK(rig.run());
    CHECK_EQ(text_of(hog), rig.expected("hog", 45));
    CHECK_EQ(hog.result().finish_reason, FinishReason::kLength);
    for (int i = 0; i < 30; ++i) CHECK_EQ(text_of(small[i]), rig.expected("small " + std::to_string(i), 12));
    rig.check_quiet();
    CHECK_EQ(rig.scheduler->statistics().failed, 0u);
  }
}

TEST(loop_cached_sequences_make_room) {
  // More is cached than fits: what is idle goes, nothing that runs is touched.
  Shape shape;
  shape.permits = 2;
  shape.n_ctx = 32;
  shape.n_cached = 14;  // 16 sequences, room for 64 tokens in all
  Rig rig(shape);
  for (int round = 0; round < 3; ++round) {
    std::vector<Generation> generations;
    for (int i = 0; i < 16; ++i) generations.push_back(rig.generate(std::string(10, static_cast<char>('a' + i)), greedy(20)));
    CHECK(rig.run());
    for (int i = 0; i < 16; ++i) {
      CHECK_EQ(text_of(generations[i]), rig.expected(std::string(10, static_cast<char>('a' + i)), 20));
    }
    rig.check_quiet();
  }
  CHECK(rig.model.cells_used() <= 64);
}

TEST(loop_cancel_takes_effect_within_a_step) {
  over_all([](Shape shape) {
    shape.n_ctx = 1024;
    Rig rig(shape);
    // While it decodes, in the middle of its prompt, and before anything was done for it.
    auto decoding = rig.generate("abc", greedy(100));
    rig.loop->step();
    rig.loop->step();
    auto prefilling = rig.generate(std::string(500, 'p'), greedy(10));
    rig.loop->step();
    auto fresh = rig.generate("fresh", greedy(10));
    const auto items = rig.model.counters().items;
    decoding.cancel();
    prefilling.cancel();
    fresh.cancel();
    CHECK(!rig.loop->step());
    CHECK_EQ(rig.model.counters().items, items);
    for (const auto* g : {&decoding, &prefilling, &fresh}) {
      REQUIRE(g->done());
      CHECK_EQ(g->result().finish_reason, FinishReason::kCancelled);
    }
    CHECK_EQ(decoding.text(), rig.expected("abc", static_cast<int>(decoding.text().size())));
    std::string piece;
    while (!decoding.text().empty() && decoding.next_for(piece, 0ns) == pronk::StreamStatus::kPiece) break;
    CHECK_THROWS(pronk::GenerationCancelled, decoding.next_for(piece, 0ns));
    // Cancelled while it queued: costs nothing and counts as abandoned.
    std::vector<Generation> holders;
    for (int i = 0; i < 4; ++i) holders.push_back(rig.generate("h", greedy(3)));
    auto queued = rig.generate("queued", greedy(3));
    queued.cancel();
    CHECK(queued.done());
    CHECK_EQ(rig.scheduler->waiting_count(), 0);
    CHECK(rig.run());
    rig.check_quiet();
    CHECK_EQ(rig.scheduler->statistics().abandoned, 1u);
  });
}

TEST(loop_dropped_handles_cancel) {
  over_all([](const Shape& shape) {
    Rig rig(shape);
    std::vector<std::optional<Generation>> generations;
    for (int i = 0; i < 12; ++i) generations.emplace_back(rig.generate("prompt", greedy(30)));
    for (int i = 0; i < 12; i += 2) generations[static_cast<std::size_t>(i)].reset();
    rig.loop->step();
    CHECK(rig.run());
    for (int i = 1; i < 12; i += 2) {
      CHECK_EQ(text_of(*generations[static_cast<std::size_t>(i)]), rig.expected("prompt", 30));
    }
    rig.check_quiet();
  });
}

TEST(loop_permit_runs_one_generation_at_a_time) {
  over_all([](const Shape& shape) {
    Rig rig(shape);
    auto permit = rig.scheduler->acquire();
    auto first = permit.generate(tokens("one"), greedy(5));
    CHECK_THROWS(pronk::PermitBusyError, permit.generate(tokens("two"), greedy(5)));
    CHECK(rig.run());
    CHECK_EQ(text_of(first), rig.expected("one", 5));
    auto second = permit.generate(tokens("two"), greedy(5));
    CHECK_EQ(rig.scheduler->active_count(), 1);
    rig.loop->step();
    // A permit comes back clean: not before its lane is settled.
    permit.release();
    CHECK(permit.released());
    CHECK_THROWS(pronk::PermitReleasedError, permit.generate(tokens("x"), greedy(5)));
    CHECK_EQ(rig.scheduler->active_count(), 1);
    rig.loop->step();
    CHECK_EQ(rig.scheduler->active_count(), 0);
    CHECK_EQ(second.result().finish_reason, FinishReason::kCancelled);
    rig.check_quiet();
  });
}

TEST(loop_permit_is_free_before_the_end_is_seen) {
  Rig rig;
  auto permit = rig.scheduler->acquire();
  const auto mailbox = std::make_shared<pronk::Mailbox>();
  auto g = permit.generate(tokens("one"), greedy(3));
  g.listen({mailbox, 7});
  CHECK(rig.run());
  CHECK_EQ(mailbox->drain(), std::vector<std::uint64_t>{7});
  auto next = permit.generate(tokens("two"), greedy(3));  // not busy
  CHECK(rig.run());
  CHECK_EQ(text_of(next), rig.expected("two", 3));
}

// ---- faults

TEST(loop_survives_every_status_at_every_call) {
  // W05 and W07: each failure at each of the first calls, with any part of the batch applied. Nobody gets a wrong text,
  // and afterwards everything works as on the first day.
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
            std::vector<std::string> prompts = {"shared one", "shared two", "other", "shared one and more"};
            std::vector<Generation> generations;
            for (const auto& prompt : prompts) generations.push_back(rig.generate(prompt, greedy(8)));
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
    for (const FaultKind kind : {FaultKind::kRuntimeError, FaultKind::kBadAlloc, FaultKind::kForeignException}) {
      Rig rig(shape);
      const int contexts = rig.model.counters().backends_made;
      auto before = rig.generate("keeps", greedy(3));
      CHECK(rig.run());
      rig.model.add_fault({.kind = kind, .call = rig.model.counters().decode_calls + 4});
      std::vector<Generation> generations;
      for (const char* prompt : {"a", "b", "c"}) generations.push_back(rig.generate(prompt, greedy(10)));
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
    for (const FaultKind kind : {FaultKind::kNoMemory, FaultKind::kFailed, FaultKind::kBadAlloc, FaultKind::kForeignException}) {
      Rig rig(shape);
      const int contexts = rig.model.counters().backends_alive;
      rig.model.add_fault({.kind = FaultKind::kRuntimeError, .times = contexts});
      rig.model.add_fault({.point = FaultPoint::kMakeBackend, .kind = kind, .times = -1});
      std::vector<Generation> generations;
      for (int i = 0; i < 8; ++i) generations.push_back(rig.generate(std::string(1, static_cast<char>('a' + i)), greedy(4)));
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
      for (const FaultKind kind : {FaultKind::kReturnFalse, FaultKind::kRuntimeError, FaultKind::kForeignException}) {
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
  // A chunk that fails half-way has pushed older cells out of the window: what is left is no state to go on from.
  for (int applied = 0; applied <= 8; ++applied) {
    Shape shape;
    shape.kind = MemoryKind::kSlidingWindow;
    shape.n_batch = 8;
    for (int n_prompt = 9; n_prompt < 20; ++n_prompt) {
      Rig rig(shape);
      rig.model.add_fault({.kind = FaultKind::kFailed, .call = 2, .applied = applied});
      const std::string prompt = std::string("abcdefghijklmnopqrst").substr(0, static_cast<std::size_t>(n_prompt));
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

// ---- the end

TEST(loop_close_rings_for_everybody) {
  // Running, submitted and queued generations: their consumers sleep until the bell rings.
  over_all([](Shape shape) {
    shape.permits = 2;
    Rig rig(shape);
    std::vector<Generation> generations;
    std::vector<std::shared_ptr<pronk::Mailbox>> mailboxes;
    for (int i = 0; i < 4; ++i) {
      generations.push_back(rig.generate("prompt", greedy(50)));
      mailboxes.push_back(std::make_shared<pronk::Mailbox>());
      if (i == 0) rig.loop->step();
    }
    for (std::size_t i = 0; i < 4; ++i) {
      generations[i].listen({mailboxes[i], i});
      mailboxes[i]->drain();
    }
    CHECK(rig.scheduler->close());
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(generations[i].done());
      CHECK(by_hand::readable(*mailboxes[i]));
      CHECK_EQ(mailboxes[i]->drain(), std::vector<std::uint64_t>{i});
    }
    CHECK_EQ(generations[0].result().finish_reason, FinishReason::kCancelled);
    CHECK_EQ(generations[1].result().finish_reason, FinishReason::kCancelled);
    CHECK_THROWS(pronk::SchedulerClosedError, generations[2].result());
    CHECK_THROWS(pronk::SchedulerClosedError, generations[3].result());
    CHECK_THROWS(pronk::SchedulerClosedError, rig.generate("x", greedy(1)));
    CHECK_EQ(rig.scheduler->active_count(), 0);
    CHECK(rig.scheduler->close());
  });
}

TEST(loop_permit_after_close) {
  Rig rig;
  auto permit = rig.scheduler->acquire();
  auto g = permit.generate(tokens("abc"), greedy(50));
  rig.loop->step();
  CHECK(rig.scheduler->close());
  CHECK(g.done());
  CHECK_THROWS(pronk::SchedulerClosedError, permit.generate(tokens("abc"), greedy(50)));
  CHECK_EQ(rig.scheduler->active_count(), 1);
  permit.release();
  CHECK_EQ(rig.scheduler->active_count(), 0);
}

// ---- everything at once

TEST(loop_random_interleavings) {
  const std::uint64_t seed = check::seed();
  std::mt19937_64 random(seed);
  const auto up_to = [&](std::uint64_t n) { return static_cast<int>(random() % n); };
  for (int round = 0; round < 40; ++round) {
    Shape shape;
    shape.kind = kAllKinds[up_to(4)];
    shape.layout = kAllLayouts[up_to(3)];
    shape.permits = 1 + up_to(5);
    shape.n_ctx = 24 + up_to(60);
    shape.n_batch = 1 + up_to(24);
    shape.n_cached = up_to(5);
    const bool faulty = up_to(2) == 0;
    Rig rig(shape);
    struct Request {
      std::string prompt;
      int n;
      Generation generation;
    };
    std::vector<Request> requests;
    const std::string stems[] = {"", "common system ", "common system prompt for all ", "else "};
    for (int step = 0; step < 300; ++step) {
      if (requests.size() < 40 && up_to(4) == 0) {
        std::string prompt = stems[up_to(4)];
        for (int i = up_to(6) + 1; i > 0; --i) prompt += static_cast<char>('a' + up_to(2));
        if (static_cast<int>(prompt.size()) >= shape.n_ctx) continue;
        auto params = greedy(up_to(20));
        params.cache = up_to(6) != 0;
        params.cache_scope = up_to(6) == 0 ? "other" : "";
        auto generation = rig.generate(prompt, params);
        requests.push_back({prompt, *params.max_tokens, std::move(generation)});
      }
      if (!requests.empty() && up_to(12) == 0) requests[random() % requests.size()].generation.cancel();
      if (faulty && up_to(10) == 0) {
        constexpr FaultKind kinds[] = {FaultKind::kNoSlot,       FaultKind::kAborted,  FaultKind::kInvalidBatch,
                                       FaultKind::kNoMemory,     FaultKind::kFailed,   FaultKind::kNanLogits,
                                       FaultKind::kRuntimeError, FaultKind::kBadAlloc, FaultKind::kForeignException};
        Fault fault{.kind = kinds[up_to(9)], .times = 1 + up_to(2)};
        if (fault.kind != FaultKind::kNoSlot && fault.kind != FaultKind::kInvalidBatch) fault.applied = up_to(6);
        rig.model.add_fault(fault);
      }
      if (faulty && up_to(30) == 0) rig.model.add_fault({.point = FaultPoint::kSeqRemove, .kind = FaultKind::kReturnFalse});
      rig.loop->step();
      if (up_to(20) == 0) rig.model.clear_faults();
      rig.check_sound();
    }
    rig.model.clear_faults();
    CHECK(rig.run());
    for (const Request& request : requests) {
      REQUIRE(request.generation.done());
      const int room = shape.n_ctx - static_cast<int>(request.prompt.size());
      const std::string whole = rig.expected(request.prompt, std::min(request.n, room));
      const std::string said = request.generation.text();
      bool complete = false;
      try {
        complete = request.generation.result().finish_reason != FinishReason::kCancelled;
      } catch (const pronk::BackendError&) {
        CHECK(faulty);
      }
      if (!CHECK_EQ(said, complete ? whole : whole.substr(0, said.size()))) return;
    }
    rig.check_quiet();
  }
}
