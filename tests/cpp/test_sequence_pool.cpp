// The sequence pool over scripted contexts: which prefix may be reused in which memory, what is
// given up first, and that what the pool knows is what the contexts hold, whatever they refuse.
#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "engine_impl.h"
#include "pronk/testing.h"
#include "sequence_pool.h"

namespace {

using pronk::Backend;
using pronk::BackendOptions;
using pronk::BatchItem;
using pronk::DecodeStatus;
using pronk::MemoryKind;
using pronk::Sequence;
using pronk::SequencePool;
using pronk::Token;
using pronk::testing::FaultKind;
using pronk::testing::FaultPoint;
using pronk::testing::ScriptedModel;
using pronk::testing::ScriptedOptions;
using Tokens = std::vector<Token>;

constexpr MemoryKind kAllKinds[] = {MemoryKind::kPlain, MemoryKind::kSlidingWindow,
                                    MemoryKind::kRecurrent, MemoryKind::kHybrid};
constexpr int kWindow = 4;

Tokens tokens(const std::string& text) { return {text.begin(), text.end()}; }

/// A pool over contexts of a scripted model.
struct Pool {
  explicit Pool(MemoryKind kind, int n_contexts = 1, int n_seq = 3, bool unified = true)
      : model([&] {
          ScriptedOptions options;
          options.memory_kind = kind;
          options.n_swa = kind == MemoryKind::kSlidingWindow ? kWindow : 0;
          return options;
        }()) {
    BackendOptions options;
    options.n_seq = n_seq;
    options.n_ctx_seq = 64;
    options.n_ctx_total = unified ? 64 * n_seq : 0;
    options.n_batch = 64;
    options.n_outputs = n_seq;
    options.kv_unified = unified;
    make = [this, options] { return model.engine()->impl().make_backend(options, nullptr); };
    std::vector<Backend*> pointers;
    for (int i = 0; i < n_contexts; ++i) {
      contexts.push_back(make());
      pointers.push_back(contexts.back().get());
    }
    pool = std::make_unique<SequencePool>(
        pointers,
        pronk::SequencePoolOptions{kind, kind == MemoryKind::kSlidingWindow ? kWindow : 0});
  }

  /// Takes a sequence and evaluates the rest of the prompt. Returns how many tokens were reused.
  Sequence* start(const std::string& prompt, const std::string& scope = "", bool reuse = true) {
    const Tokens text = tokens(prompt);
    Sequence* sequence = pool->take(text, scope, reuse);
    if (sequence == nullptr) return nullptr;
    reused = sequence->tokens.size();
    CHECK(reused < text.size());
    CHECK_EQ(Tokens(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(reused)),
             sequence->tokens);
    go_on(*sequence, text);
    return sequence;
  }

  /// Evaluates the rest of a prompt, with a pause where a checkpoint is due.
  void go_on(Sequence& sequence, const Tokens& prompt) {
    const auto at = [&](std::size_t n) { return prompt.begin() + static_cast<std::ptrdiff_t>(n); };
    const std::size_t pause = sequence.checkpoint_at;
    if (pause > sequence.tokens.size()) evaluate(sequence, {at(sequence.tokens.size()), at(pause)});
    evaluate(sequence, {at(sequence.tokens.size()), prompt.end()});
  }

  /// Decodes `text` and checks that the model predicts what it would without any reuse.
  void evaluate(Sequence& sequence, const Tokens& text) {
    Backend& context = *contexts[static_cast<std::size_t>(sequence.context)];
    std::vector<BatchItem> batch;
    auto pos = static_cast<std::int32_t>(sequence.tokens.size());
    for (const Token token : text) batch.push_back({token, pos++, sequence.id, false});
    batch.back().output = true;
    CHECK(context.decode(batch) == DecodeStatus::kOk);
    pool->extend(sequence, text);
    const auto row = context.logits(static_cast<std::int32_t>(batch.size()) - 1);
    const auto best = static_cast<Token>(std::max_element(row.begin(), row.end()) - row.begin());
    CHECK_EQ(Tokens{best}, model.expected(sequence.tokens, 1));
  }

  /// Starts and ends a prompt, so that it is cached. Returns the tokens reused.
  std::size_t pass(const std::string& prompt, const std::string& scope = "") {
    Sequence* sequence = start(prompt, scope);
    REQUIRE(sequence != nullptr);
    pool->give_back(*sequence, true);
    return reused;
  }

  void check_same() {
    std::size_t known = 0;
    const auto held = model.sequences();
    for (const auto& sequence : pool->sequences()) {
      if (sequence->tokens.empty() || pool->broken(sequence->context)) continue;
      ++known;
      const bool found = std::any_of(held.begin(), held.end(), [&](const auto& entry) {
        return entry.first.second == sequence->id && entry.second == sequence->tokens;
      });
      CHECK(found);
    }
    CHECK_EQ(model.violations(), std::vector<std::string>{});
  }

  ScriptedModel model;
  std::function<std::unique_ptr<Backend>()> make;
  std::vector<std::unique_ptr<Backend>> contexts;
  std::unique_ptr<SequencePool> pool;
  std::size_t reused = 0;
};

}  // namespace

TEST(sequence_pool_common_prefix) {
  using pronk::common_prefix;
  CHECK_EQ(common_prefix(tokens(""), tokens("abc")), 0u);
  CHECK_EQ(common_prefix(tokens("abd"), tokens("abc")), 2u);
  CHECK_EQ(common_prefix(tokens("abc"), tokens("abc")), 3u);
}

TEST(sequence_pool_reuses_by_the_rules_of_the_memory) {
  for (const MemoryKind kind : kAllKinds) {
    const bool cuttable = kind == MemoryKind::kPlain || kind == MemoryKind::kSlidingWindow;
    for (const bool unified : {true, false}) {
      Pool p(kind, 1, 3, unified);
      CHECK_EQ(p.pass("abcdef"), 0u);
      // A longer text that starts with all of it: every memory can.
      CHECK_EQ(p.pass("abcdefgh"), 6u);
      CHECK_EQ(p.pool->counters().hits, 1u);
      // The last token is always evaluated.
      CHECK_EQ(p.pass("abcdefgh"), cuttable ? 7u : 0u);
      // Only a beginning: not where states cannot be cut. Within the window, where there is one.
      CHECK_EQ(p.pass("abcdefgX"), cuttable ? 7u : 0u);
      CHECK_EQ(p.pass("Z"), 0u);
      p.check_same();
      CHECK(!p.pool->broken(0));
    }
  }
}

TEST(sequence_pool_respects_the_window) {
  Pool p(MemoryKind::kSlidingWindow);
  p.pass("abcdefghijkl");
  // The window has left "abc": a token after it would look at cells that are gone.
  CHECK_EQ(p.pass("abcXYZ"), 0u);
  CHECK_EQ(p.pool->counters().refused, 1u);
  CHECK(std::string(p.pool->counters().refused_reason) != "");
  // The next token after 11 sees 8 to 10, which are there.
  CHECK_EQ(p.pass("abcdefghijkX"), 11u);
  p.check_same();
  // Never past its beginning: everything is still there.
  Pool q(MemoryKind::kSlidingWindow);
  q.pass("abcd");
  CHECK_EQ(q.pass("aX"), 1u);
  q.check_same();
}

TEST(sequence_pool_copies_from_a_busy_sequence) {
  for (const MemoryKind kind : kAllKinds) {
    for (const bool unified : {true, false}) {
      Pool p(kind, 1, 3, unified);
      Sequence* running = p.start("abcd");
      Sequence* other = p.start("abcdxy");
      REQUIRE(running != nullptr && other != nullptr && running != other);
      CHECK_EQ(p.reused, 4u);
      Sequence* third = p.start("abcq");
      CHECK_EQ(p.reused,
               kind == MemoryKind::kPlain || kind == MemoryKind::kSlidingWindow ? 3u : 0u);
      CHECK(p.pool->take(tokens("abc"), "", true) == nullptr);
      // They go on as if alone.
      p.evaluate(*running, tokens("1"));
      p.evaluate(*other, tokens("2"));
      p.evaluate(*third, tokens("3"));
      p.check_same();
      p.pool->give_back(*other, false);
      CHECK(other->tokens.empty());
      p.evaluate(*running, tokens("4"));
      p.check_same();
    }
  }
}

TEST(sequence_pool_leaves_a_checkpoint_where_prompts_part) {
  const std::string system = "you are a helpful assistant and ";
  const std::size_t n = system.size();
  for (const MemoryKind kind : {MemoryKind::kRecurrent, MemoryKind::kHybrid}) {
    for (const bool unified : {true, false}) {
      Pool p(kind, 1, 4, unified);
      CHECK_EQ(p.pass(system + "A"), 0u);
      // The state at the end of the common part is gone. The second prompt leaves one there.
      CHECK_EQ(p.pass(system + "B"), 0u);
      CHECK_EQ(p.pool->counters().refused, 1u);
      // It stays for all that follow, also while one of them runs.
      CHECK_EQ(p.pass(system + "C"), n);
      Sequence* running = p.start(system + "D");
      CHECK_EQ(p.reused, n);
      CHECK_EQ(p.pass(system + "E"), n);
      p.evaluate(*running, tokens("more"));
      CHECK_EQ(p.pool->counters().refused, 1u);
      // The ends of conversations go first; each that is left goes on in place.
      CHECK_EQ(p.pass(system + "EF"), n + 1);
      CHECK_EQ(p.pool->longest_known(tokens(system + "B?"), ""), n);
      p.check_same();
      CHECK(!p.pool->broken(0));
    }
  }
}

TEST(sequence_pool_takes_a_checkpoint_where_nothing_else_is_left) {
  const std::string system = "you are a helpful assistant and ";
  Pool p(MemoryKind::kRecurrent, 1, 2);
  p.pass(system + "A");
  p.pass(system + "B");
  Sequence* first = p.start(system + "C");
  CHECK_EQ(p.reused, system.size());
  Sequence* second = p.start(system + "D");
  CHECK_EQ(p.reused, system.size());
  REQUIRE(second != nullptr);
  CHECK(!first->checkpoint);
  CHECK(!second->checkpoint);
  CHECK(p.pool->take(tokens("E"), "", true) == nullptr);
  p.check_same();
}

TEST(sequence_pool_leaves_no_checkpoint_for_a_few_tokens_or_in_private) {
  Pool p(MemoryKind::kRecurrent, 1, 4);
  p.pass("0123456789abcdeA");
  CHECK_EQ(p.start("0123456789abcdeB", "", false)->checkpoint_at, 0u);
  CHECK_EQ(p.pool->counters().refused, 0u);
  CHECK_EQ(p.start("0123456789abcdeC")->checkpoint_at, 0u);
  CHECK_EQ(p.pool->counters().refused, 1u);
  // A context of one sequence has no place for it.
  Pool q(MemoryKind::kRecurrent, 1, 1);
  q.pass("0123456789abcdefA");
  CHECK_EQ(q.pool->take(tokens("0123456789abcdefB"), "", true)->checkpoint_at, 0u);
}

TEST(sequence_pool_keeps_scopes_apart) {
  Pool p(MemoryKind::kPlain);
  p.pass("abcdef", "tenant 1");
  CHECK_EQ(p.pass("abcdefg", "tenant 2"), 0u);
  CHECK_EQ(p.pool->longest_known(tokens("abcdefg"), "tenant 1"), 6u);
  CHECK_EQ(p.pool->longest_known(tokens("abcdef"), ""), 0u);
  CHECK_EQ(p.pass("abcdefg", "tenant 1"), 6u);
  // A sequence that changes hands brings nothing along.
  for (int i = 0; i < 3; ++i) p.pass(std::string(4, static_cast<char>('p' + i)), "tenant 3");
  CHECK_EQ(p.pass("abcdefg", "tenant 1"), 0u);
  p.check_same();
}

TEST(sequence_pool_without_caching_neither_takes_nor_leaves) {
  Pool p(MemoryKind::kPlain);
  p.pass("abcdef");
  Sequence* secret = p.start("abcdefgh", "", false);
  CHECK_EQ(p.reused, 0u);
  // Not even while it runs.
  CHECK_EQ(p.pool->longest_known(tokens("abcdefghi"), ""), 6u);
  CHECK_EQ(p.pass("abcdefghi"), 6u);
  p.pool->give_back(*secret, false);
  CHECK(secret->tokens.empty());
  // The sequence is an ordinary one again.
  for (int i = 0; i < 3; ++i) p.pass(std::string(4, static_cast<char>('p' + i)));
  CHECK_EQ(p.pass("rrrrr"), 4u);
  p.check_same();
}

TEST(sequence_pool_gives_up_the_least_recently_used) {
  Pool p(MemoryKind::kPlain);
  p.pass("aaaa");
  p.pass("bbbb");
  p.pass("cccc");
  CHECK_EQ(p.pass("aaaax"), 4u);  // used again
  CHECK_EQ(p.pass("dddd"), 0u);   // takes the place of b
  CHECK_EQ(p.pool->longest_known(tokens("bbbbx"), ""), 0u);
  CHECK_EQ(p.pool->longest_known(tokens("aaaaxx"), ""), 5u);
  CHECK_EQ(p.pool->longest_known(tokens("ccccx"), ""), 4u);
  CHECK(p.pool->evict(0));  // c
  CHECK_EQ(p.pool->longest_known(tokens("ccccx"), ""), 0u);
  CHECK(p.pool->evict(0));
  CHECK(p.pool->evict(0));
  CHECK(!p.pool->evict(0));
  CHECK_EQ(p.model.cells_used(), 0);
}

TEST(sequence_pool_never_evicts_what_runs) {
  Pool p(MemoryKind::kPlain);
  Sequence* running = p.start("abc");
  p.pass("xyz");
  CHECK(p.pool->evict(0));
  CHECK(!p.pool->evict(0));
  CHECK_EQ(running->tokens, tokens("abc"));
}

TEST(sequence_pool_of_single_sequence_contexts) {
  for (const MemoryKind kind : kAllKinds) {
    Pool p(kind, 3, 1);
    Sequence* a = p.start("abcd");
    Sequence* b = p.start("abcdef");  // nowhere to copy to
    CHECK_EQ(p.reused, 0u);
    CHECK(a->context != b->context);
    p.pool->give_back(*a, true);
    Sequence* again = p.start("abcdxy");
    CHECK(again == a);
    CHECK_EQ(p.reused, 4u);
    p.check_same();
  }
}

TEST(sequence_pool_cuts) {
  for (const MemoryKind kind : kAllKinds) {
    const bool cuttable = kind == MemoryKind::kPlain || kind == MemoryKind::kSlidingWindow;
    Pool p(kind);
    Sequence* s = p.start("abcdefgh");
    p.pool->cut(*s, 8, false);
    CHECK_EQ(s->tokens.size(), 8u);
    p.pool->cut(*s, 8, true);
    CHECK_EQ(s->tokens.size(), cuttable ? 8u : 0u);
    if (s->tokens.empty()) p.evaluate(*s, tokens("abcdefgh"));
    p.pool->cut(*s, 7, false);
    CHECK_EQ(s->tokens.size(), cuttable ? 7u : 0u);
    p.check_same();
    p.pool->cut(*s, 0, false);
    CHECK(s->tokens.empty());
    CHECK_EQ(p.model.cells_used(), 0);
    CHECK(!p.pool->broken(0));
  }
}

TEST(sequence_pool_takes_back_what_a_failed_decode_left) {
  for (const MemoryKind kind : kAllKinds) {
    for (const int applied : {0, 1, 3}) {
      Pool p(kind);
      Sequence* s = p.start("abcd");
      p.model.add_fault({.kind = FaultKind::kFailed, .applied = applied});
      std::vector<BatchItem> batch;
      for (int i = 0; i < 4; ++i) batch.push_back({'x', 4 + i, s->id, i == 3});
      CHECK(p.contexts[0]->decode(batch) == DecodeStatus::kFailed);
      p.pool->cut(*s, 4, true);
      p.check_same();
      const Tokens whole = tokens("abcdef");
      p.evaluate(*s, {whole.begin() + static_cast<std::ptrdiff_t>(s->tokens.size()), whole.end()});
      p.check_same();
    }
  }
}

TEST(sequence_pool_survives_refusals) {
  for (const MemoryKind kind : kAllKinds) {
    for (const FaultKind fault : {FaultKind::kReturnFalse, FaultKind::kRuntimeError,
                                  FaultKind::kBadAlloc, FaultKind::kForeignException}) {
      // Once: what could not be cut is emptied instead.
      Pool p(kind);
      Sequence* s = p.start("abcdef");
      p.model.add_fault({.point = FaultPoint::kSeqRemove, .kind = fault});
      p.pool->cut(*s, 5, false);
      CHECK(s->tokens.empty());
      p.check_same();
      p.model.clear_faults();
      // For ever: the context has to be replaced.
      Sequence* t = p.start("qrst");
      p.model.add_fault({.point = FaultPoint::kSeqRemove, .kind = fault, .times = -1});
      p.pool->give_back(*t, false);
      CHECK(p.pool->broken(0));
      CHECK(t->tokens.empty());
      p.model.clear_faults();
      auto fresh = p.make();
      p.pool->replace_context(0, fresh.get());
      p.contexts[0] = std::move(fresh);
      CHECK(!p.pool->broken(0));
      p.check_same();
      CHECK_EQ(p.pass("qrst"), 0u);
      p.check_same();
    }
  }
}

TEST(sequence_pool_survives_a_copy_that_throws) {
  for (const FaultKind fault :
       {FaultKind::kRuntimeError, FaultKind::kBadAlloc, FaultKind::kForeignException}) {
    Pool p(MemoryKind::kPlain);
    Sequence* a = p.start("abcdef");
    p.model.add_fault({.point = FaultPoint::kSeqCopy, .kind = fault});
    // The prompt runs all the same, without the prefix.
    Sequence* b = p.start("abcdefgh");
    REQUIRE(b != nullptr);
    CHECK_EQ(p.reused, 0u);
    CHECK_EQ(p.pool->counters().hits, 0u);
    CHECK(a != b);
    p.check_same();
  }
}

TEST(sequence_pool_random_walk) {
  // Takes, steps, cuts, ends, evictions and refusals in random order; the pool and the contexts
  // never disagree, and the model always predicts what it would without reuse.
  std::mt19937_64 random(check::seed());
  const auto up_to = [&](std::size_t n) { return random() % n; };
  for (int round = 0; round < 60; ++round) {
    const MemoryKind kind = kAllKinds[up_to(4)];
    const bool single = up_to(3) == 0;
    Pool p(kind, single ? 3 : 1, single ? 1 : 4, up_to(2) == 0);
    std::vector<Sequence*> running;
    for (int step = 0; step < 100; ++step) {
      const auto action = up_to(10);
      if (action < 4) {
        std::string prompt(1, static_cast<char>('a' + up_to(2)));
        if (up_to(4) == 0) prompt = "a common system prompt ";
        while (up_to(8) != 0 && prompt.size() < 32) prompt += static_cast<char>('a' + up_to(2));
        if (up_to(20) == 0)
          p.model.add_fault({.point = FaultPoint::kSeqRemove, .kind = FaultKind::kReturnFalse});
        if (up_to(20) == 0)
          p.model.add_fault({.point = FaultPoint::kSeqCopy, .kind = FaultKind::kForeignException});
        const Tokens text = tokens(prompt);
        Sequence* s = p.pool->take(text, up_to(4) == 0 ? "other" : "", up_to(5) != 0);
        p.model.clear_faults();
        if (s == nullptr) continue;
        if (p.pool->broken(s->context)) {
          auto fresh = p.make();
          p.pool->replace_context(s->context, fresh.get());
          const auto context = static_cast<std::size_t>(s->context);
          p.contexts[context] = std::move(fresh);
          // Everything that ran there starts again.
          for (Sequence* r : running) {
            if (r->context == s->context) CHECK(r->tokens.empty());
          }
          std::erase_if(running, [&](Sequence* r) {
            if (r->context != s->context) return false;
            p.pool->give_back(*r, true);
            return true;
          });
        }
        p.go_on(*s, text);
        running.push_back(s);
      } else if (!running.empty()) {
        const std::size_t i = up_to(running.size());
        Sequence* s = running[i];
        if (action < 7 && s->tokens.size() < 60) {
          p.evaluate(*s, {static_cast<Token>('a' + up_to(2))});
        } else if (action < 9) {
          p.pool->give_back(*s, up_to(3) != 0);
          running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
        } else {
          p.pool->cut(*s, up_to(s->tokens.size() + 1), up_to(2) == 0);
        }
      } else {
        p.pool->evict(static_cast<std::int32_t>(up_to(p.contexts.size())));
      }
      p.check_same();
    }
  }
}
