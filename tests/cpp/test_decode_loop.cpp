// The decode loop, stepped by hand over a scripted model: greedy text is what the model says to the
// prompt alone, whatever else runs, ends, fails or is reused beside it.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "check.h"
#include "decode_rig.h"
#include "pronk/error.h"

namespace {

using namespace std::chrono_literals;
using namespace decode_rig;
using pronk::FinishReason;
using pronk::testing::FaultKind;

}  // namespace

TEST(loop_says_what_the_model_says) {
  over_all([](const Shape& shape) {
    Rig rig(shape);
    std::vector<std::string> prompts;
    std::vector<Generation> generations;
    for (int i = 0; i < 12; ++i) {
      prompts.push_back(
          std::string(static_cast<std::size_t>(i % 5 + 1), static_cast<char>('a' + i)));
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
    CHECK_EQ(s.prompt_tokens,
             s.reused_tokens + s.evaluated_tokens - 12 * 9);  // the last token is not evaluated
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
        // Only what was evaluated in whole chunks has the bits of a fresh evaluation; and to that
        // point the memory has to be cut.
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
        generations.push_back(
            rig.generate(system + std::string(1, static_cast<char>('A' + i)), greedy(4)));
        if (!together) rig.loop->step();
      }
      CHECK(rig.run());
      for (int i = 0; i < 6; ++i) {
        CHECK_EQ(text_of(generations[i]),
                 rig.expected(system + std::string(1, static_cast<char>('A' + i)), 4));
      }
      rig.check_quiet();
      // The common part once, then a last prompt token and three completion tokens for each. Who
      // comes late may find the rest of it too short to wait for.
      if (!together) continue;
      CHECK_EQ(rig.model.counters().items, system.size() + 6 * 4);
      CHECK_EQ(rig.scheduler->statistics().reused_tokens, 5 * system.size());
    }
  }
}

TEST(loop_late_agents_share_what_the_second_evaluates_again) {
  // The first has gone on past the common part when the others come, all at once.
  for (const MemoryKind kind : {MemoryKind::kRecurrent, MemoryKind::kHybrid}) {
    for (const char* kv : {"shared", "split"}) {
      Shape shape;
      shape.kind = kind;
      shape.layout.kv = kv;
      shape.permits = 6;
      Rig rig(shape);
      const std::string system = "you are a helpful assistant and";
      const auto prompt = [&](int i) {
        return system + std::string(2, static_cast<char>('A' + i));
      };
      std::vector<Generation> generations;
      generations.push_back(rig.generate(prompt(0), greedy(8)));
      rig.loop->step();
      rig.loop->step();
      for (int i = 1; i < 5; ++i) generations.push_back(rig.generate(prompt(i), greedy(4)));
      CHECK(rig.run());
      // And one that comes when all is quiet.
      generations.push_back(rig.generate(prompt(5), greedy(4)));
      CHECK(rig.run());
      for (int i = 0; i < 6; ++i)
        CHECK_EQ(text_of(generations[i]), rig.expected(prompt(i), i == 0 ? 8 : 4));
      const auto statistics = rig.scheduler->statistics();
      CHECK_EQ(statistics.reused_tokens, 4 * system.size());
      CHECK_EQ(statistics.reuse_refused, 1u);
      rig.check_quiet();
    }
  }
}

TEST(loop_prefix_leader_may_end_at_any_moment) {
  // Others wait for the prefix that one evaluates. It is cancelled, or fails: they go on by
  // themselves.
  const std::string system = "a system prompt that is quite a bit longer than one batch";
  for (int at = 0; at < 12; ++at) {
    for (const bool fail : {false, true}) {
      Shape shape;
      shape.n_batch = 8;
      shape.n_ctx = 128;
      Rig rig(shape);
      std::vector<Generation> generations;
      for (const char c : {'A', 'B', 'C', 'D'})
        generations.push_back(rig.generate(system + c, greedy(4)));
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
  for (const char c : {'x', 'y', 'z'})
    prompts.push_back(rig.generate(std::string(600, c), greedy(1)));
  std::map<std::int32_t, int> idle;
  std::size_t seen_batches = 0;
  for (int i = 0; i < 400 && !std::all_of(
                                 prompts.begin(), prompts.end(), [](auto& g) { return g.done(); });
       ++i) {
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
    for (int i = 0; i < 64; ++i)
      generations.push_back(rig.generate(std::string(1, static_cast<char>(' ' + i)), greedy(5)));
    CHECK(rig.run());
    for (int i = 0; i < 64; ++i) {
      CHECK_EQ(text_of(generations[i]),
               rig.expected(std::string(1, static_cast<char>(' ' + i)), 5));
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
    for (int i = 0; i < 30; ++i)
      small.push_back(rig.generate("small " + std::to_string(i), greedy(12)));
    CHECK(rig.run());
    CHECK_EQ(text_of(hog), rig.expected("hog", 45));
    CHECK_EQ(hog.result().finish_reason, FinishReason::kLength);
    for (int i = 0; i < 30; ++i)
      CHECK_EQ(text_of(small[i]), rig.expected("small " + std::to_string(i), 12));
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
    for (int i = 0; i < 16; ++i)
      generations.push_back(rig.generate(std::string(10, static_cast<char>('a' + i)), greedy(20)));
    CHECK(rig.run());
    for (int i = 0; i < 16; ++i) {
      CHECK_EQ(text_of(generations[i]),
               rig.expected(std::string(10, static_cast<char>('a' + i)), 20));
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
    while (!decoding.text().empty() && decoding.next_for(piece, 0ns) == pronk::StreamStatus::kPiece)
      break;
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
