// Lanes whose tokens are chosen beside the decode thread: the others do not wait for them.
#include <atomic>
#include <condition_variable>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "check.h"
#include "decode_rig.h"
#include "grammar.h"
#include "lane_sampling.h"
#include "pronk/error.h"

namespace {

using namespace std::chrono_literals;
using namespace decode_rig;
using pronk::FinishReason;
using pronk::Token;

/// What a test does to a grammar, and learns of it.
struct Control {
  std::mutex mutex;
  std::condition_variable changed;
  bool held = false;  // guarded by mutex
  int waiting = 0;    // guarded by mutex
  std::atomic<int> n_masks{0};
  std::atomic<int> n_accepted{0};
  int fails_at = -1;  // number of the token that cannot follow
  int ends_at = std::numeric_limits<int>::max();

  void hold() {
    std::lock_guard lock(mutex);
    held = true;
  }
  void release() {
    std::lock_guard lock(mutex);
    held = false;
    changed.notify_all();
  }
  bool wait_until_held() {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, 20s, [this] { return waiting > 0; });
  }
  void pass() {
    std::unique_lock lock(mutex);
    ++waiting;
    changed.notify_all();
    changed.wait(lock, [this] { return !held; });
    --waiting;
  }
};

bool is_vowel(Token token) { return std::string("aeiou").find(static_cast<char>(token)) < 5; }

/// Text of vowels.
class Vowels final : public pronk::Grammar {
 public:
  explicit Vowels(std::shared_ptr<Control> control) : control_(std::move(control)) {}

  bool allows(Token token) const override {
    control_->pass();
    return is_vowel(token);
  }
  std::size_t mask(std::span<float> logits) const override {
    ++control_->n_masks;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (!is_vowel(static_cast<Token>(i))) logits[i] = -std::numeric_limits<float>::infinity();
    }
    return 5;
  }
  void accept(Token token) override {
    CHECK(is_vowel(token));
    if (control_->n_accepted == control_->fails_at) {
      throw pronk::GrammarError("grammar: got a test, expected none, go on");
    }
    ++control_->n_accepted;
  }
  bool finished() const override { return control_->n_accepted >= control_->ends_at; }

 private:
  const std::shared_ptr<Control> control_;
};

Generation vowels(pronk::SchedulerState& state, const std::string& prompt,
                  const GenerationParams& params, std::shared_ptr<Control> control) {
  auto generation = state.make_generation(tokens(prompt), params);
  generation->grammar = std::make_unique<Vowels>(std::move(control));
  return state.queue(std::move(generation), 0);
}

bool all_vowels(const std::string& text) {
  return text.find_first_not_of("aeiou") == std::string::npos;
}

}  // namespace

TEST(lane_sampling_follows_its_grammar_and_disturbs_nobody) {
  over_all([](const Shape& shape) {
    Rig rig(shape);
    const auto control = std::make_shared<Control>();
    auto constrained = vowels(*rig.state, "hello", greedy(12), control);
    auto plain = rig.generate("other", greedy(12));
    CHECK(rig.run());
    CHECK_EQ(text_of(plain), rig.expected("other", 12));
    const auto done = constrained.result();
    CHECK_EQ(done.text.size(), 12u);
    CHECK(all_vowels(done.text));
    CHECK_EQ(done.finish_reason, FinishReason::kLength);
    CHECK_EQ(control->n_accepted.load(), 12);
    CHECK(control->n_masks > 0);
    rig.check_quiet();
  });
}

TEST(lane_sampling_ends_where_nothing_can_follow) {
  Rig rig;
  const auto control = std::make_shared<Control>();
  control->ends_at = 5;
  auto generation = vowels(*rig.state, "hello", greedy(50), control);
  CHECK(rig.run());
  const auto done = generation.result();
  CHECK_EQ(done.text.size(), 5u);
  CHECK_EQ(done.finish_reason, FinishReason::kStop);
  CHECK_EQ(done.usage.completion_tokens, 5);
  rig.check_quiet();
}

TEST(lane_sampling_others_go_on_while_it_takes_its_time) {
  over_all([](const Shape& shape) {
    Rig rig(shape);
    const auto control = std::make_shared<Control>();
    control->hold();
    auto slow = vowels(*rig.state, "hello", greedy(4), control);
    std::vector<Generation> plain;
    for (const char* prompt : {"one", "two"}) plain.push_back(rig.generate(prompt, greedy(20)));
    for (int i = 0; i < 200 && !(plain[0].done() && plain[1].done()); ++i) rig.loop->step();
    CHECK(control->wait_until_held());
    CHECK_EQ(text_of(plain[0]), rig.expected("one", 20));
    CHECK_EQ(text_of(plain[1]), rig.expected("two", 20));
    CHECK(!slow.done());
    control->release();
    CHECK(rig.run());
    CHECK(all_vowels(text_of(slow)));
    rig.check_quiet();
  });
}

TEST(lane_sampling_cancelled_meanwhile) {
  Rig rig;
  const auto control = std::make_shared<Control>();
  control->hold();
  auto slow = vowels(*rig.state, "hello", greedy(4), control);
  auto plain = rig.generate("one", greedy(4));
  for (int i = 0; i < 100 && !plain.done(); ++i) rig.loop->step();
  CHECK(control->wait_until_held());
  slow.cancel();
  rig.loop->step();
  CHECK(slow.done());
  CHECK_EQ(slow.result().finish_reason, FinishReason::kCancelled);
  // Its lane serves the next one while the errand still runs.
  std::vector<Generation> next;
  for (const char* prompt : {"two", "three", "four", "five"}) {
    next.push_back(rig.generate(prompt, greedy(6)));
  }
  CHECK(rig.run());
  CHECK_EQ(text_of(next[0]), rig.expected("two", 6));
  CHECK_EQ(text_of(next[3]), rig.expected("five", 6));
  rig.check_quiet();
  control->release();
}

TEST(lane_sampling_error_is_its_own) {
  Rig rig;
  const auto control = std::make_shared<Control>();
  control->fails_at = 3;
  auto bad = vowels(*rig.state, "a longer prompt", greedy(20), control);
  auto plain = rig.generate("other", greedy(20));
  CHECK(rig.run());
  CHECK_THROWS(pronk::GrammarError, bad.result());
  CHECK_EQ(bad.text().size(), 3u);
  CHECK_EQ(text_of(plain), rig.expected("other", 20));
  // What was computed is still good.
  auto again = rig.generate("a longer prompt", greedy(4));
  CHECK(rig.run());
  CHECK(again.result().usage.cached_tokens > 0);
  CHECK_EQ(text_of(again), rig.expected("a longer prompt", 4));
  rig.check_quiet();
}

TEST(lane_sampling_survives_failed_decodes) {
  Rig rig;
  const auto control = std::make_shared<Control>();
  pronk::testing::Fault fault;
  fault.kind = pronk::testing::FaultKind::kRuntimeError;
  fault.call = 4;
  rig.model.add_fault(fault);
  auto one = vowels(*rig.state, "hello", greedy(10), control);
  auto two = rig.generate("other", greedy(10));
  CHECK(rig.run());
  CHECK(one.done());
  CHECK(two.done());
  rig.check_quiet();
}

TEST(lane_sampling_with_its_thread) {
  pronk::testing::ScriptedModel model;
  pronk::SchedulerOptions options;
  options.max_concurrent = 4;
  const auto state = std::make_shared<pronk::SchedulerState>(options);
  pronk::PoolOptions pool;
  pool.n_ctx = 128;
  state->set_pool(model.engine(), pool);
  pronk::InferenceScheduler scheduler(state);
  std::vector<Generation> constrained;
  std::vector<Generation> plain;
  for (int i = 0; i < 20; ++i) {
    const std::string prompt = "prompt " + std::to_string(i);
    constrained.push_back(vowels(*state, prompt, greedy(15), std::make_shared<Control>()));
    plain.push_back(scheduler.generate(tokens(prompt), greedy(15)));
    if (i % 5 == 0) constrained.back().cancel();
  }
  for (int i = 0; i < 20; ++i) {
    CHECK(all_vowels(constrained[i].result().text));
    const std::string prompt = "prompt " + std::to_string(i);
    const Tokens said = model.expected(tokens(prompt), 15);
    CHECK_EQ(plain[i].result().text, std::string(said.begin(), said.end()));
  }
  CHECK_EQ(model.violations(), std::vector<std::string>{});
}

TEST(lane_sampling_closed_meanwhile) {
  pronk::testing::ScriptedModel model;
  const auto state = std::make_shared<pronk::SchedulerState>(pronk::SchedulerOptions{});
  pronk::PoolOptions pool;
  pool.n_ctx = 128;
  state->set_pool(model.engine(), pool);
  const auto control = std::make_shared<Control>();
  control->hold();
  std::thread later;
  {
    pronk::InferenceScheduler scheduler(state);
    auto generation = vowels(*state, "hello", greedy(10), control);
    CHECK(control->wait_until_held());
    CHECK(scheduler.close());
    CHECK(generation.done());
    later = std::thread([control] {
      std::this_thread::sleep_for(20ms);
      control->release();
    });
  }
  later.join();
}
