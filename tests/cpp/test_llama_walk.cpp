// The decode loop over llama.cpp itself, step by step, in random order: after every step the
// library's positions are what the pool believes, and at the end every sequence still gives the
// logits of its tokens.
//
// The models come from the Python suite: PRONK_TINY_DIR names a directory of them.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "by_hand.h"
#include "check.h"
#include "decode_loop.h"
#include "engine_impl.h"
#include "pool_plan.h"
#include "pronk/engine.h"
#include "pronk/error.h"
#include "pronk/scheduler.h"
#include "scheduler_state.h"

namespace {

using by_hand::Tokens;
using pronk::Backend;
using pronk::BatchItem;
using pronk::DecodeStatus;
using pronk::FinishReason;
using pronk::Generation;
using pronk::InferenceEngine;
using pronk::MemoryKind;
using pronk::Sequence;
using pronk::Token;

constexpr int kSteps = 2500;  // of each kind of memory, over all rounds
constexpr int kRounds = 5;

// Without flash attention and with a cache of float32 these models round to 1e-4 at worst, whatever
// the size of a batch; a wrong token in a prefix moves a logit by more than 0.1.
constexpr float kTolerance = 1e-2f;

/// A context whose decodes fail on demand. Those that fail half way have really applied a part, as
/// llama.cpp leaves the pieces of a batch that came before the one that failed.
class FailingBackend final : public Backend {
 public:
  struct Fault {
    DecodeStatus status = DecodeStatus::kFailed;
    std::size_t applied = 0;  ///< items
  };

  explicit FailingBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  std::optional<Fault> next_fault;

  std::int32_t n_seq() const noexcept override { return inner_->n_seq(); }
  std::int32_t n_ctx_seq() const noexcept override { return inner_->n_ctx_seq(); }
  std::int32_t n_ctx_total() const noexcept override { return inner_->n_ctx_total(); }
  std::int32_t n_batch() const noexcept override { return inner_->n_batch(); }
  std::int32_t n_vocab() const noexcept override { return inner_->n_vocab(); }

  DecodeStatus decode(std::span<const BatchItem> batch) override {
    const auto fault = std::exchange(next_fault, std::nullopt);
    if (!fault) return inner_->decode(batch);
    const std::size_t applied = std::min(fault->applied, batch.size());
    const DecodeStatus status =
        applied > 0 ? inner_->decode(batch.first(applied)) : DecodeStatus::kOk;
    return status == DecodeStatus::kOk ? fault->status : status;
  }
  std::span<const float> logits(std::int32_t index) override { return inner_->logits(index); }
  bool seq_remove(std::int32_t seq, std::int32_t p0, std::int32_t p1) override {
    return inner_->seq_remove(seq, p0, p1);
  }
  void seq_copy(std::int32_t from, std::int32_t to, std::int32_t p0, std::int32_t p1) override {
    inner_->seq_copy(from, to, p0, p1);
  }
  std::int32_t seq_pos_min(std::int32_t seq) const override { return inner_->seq_pos_min(seq); }
  std::int32_t seq_pos_max(std::int32_t seq) const override { return inner_->seq_pos_max(seq); }
  void abort(bool on) noexcept override { inner_->abort(on); }

 private:
  const std::unique_ptr<Backend> inner_;
};

struct Walk {
  Walk(std::shared_ptr<InferenceEngine> engine_in, const pronk::PoolOptions& options, int permits)
      : engine(std::move(engine_in)),
        kind(engine->info().memory_kind),
        plan(pronk::plan_pool(engine->info(), false, 1, options, permits)) {
    pronk::LoopOptions loop_options;
    loop_options.n_lanes = plan.n_lanes;
    loop_options.n_ctx = plan.n_ctx;
    loop_options.n_contexts = plan.n_contexts;
    loop_options.exact_reuse = !plan.batched;
    loop_options.share_prefixes = plan.batched;
    loop_options.share_cells = plan.batched && plan.kv == "shared";
    loop_options.consecutive_lanes = plan.kv == "split";
    loop_options.policy.n_batch = plan.n_batch;
    contexts.resize(static_cast<std::size_t>(plan.n_contexts));
    loop_options.make_context = [this](std::int32_t index) {
      auto context = std::make_unique<FailingBackend>(
          engine->impl().make_backend(plan.context, engine->impl().make_threads(1)));
      contexts[static_cast<std::size_t>(index)] = context.get();
      return context;
    };
    pronk::SchedulerOptions scheduler_options;
    scheduler_options.max_concurrent = permits;
    scheduler_options.clock = clock.clock();
    state = std::make_shared<pronk::SchedulerState>(scheduler_options);
    loop = std::make_shared<pronk::DecodeLoop>(loop_options, engine, scheduler_options.clock,
                                               state->trace);
    state->adopt_pool(engine, loop);
    scheduler = std::make_unique<pronk::InferenceScheduler>(state);
  }

  FailingBackend& context_of(const Sequence& sequence) const {
    return *contexts[static_cast<std::size_t>(sequence.context)];
  }
  const auto& sequences() const { return loop->sequences().sequences(); }

  bool check_positions() const {
    for (const auto& sequence : sequences()) {
      if (loop->sequences().broken(sequence->context)) continue;  // made anew before its next use
      const auto n = static_cast<std::int32_t>(sequence->tokens.size());
      const Backend& context = context_of(*sequence);
      if (!CHECK_EQ(context.seq_pos_max(sequence->id) + 1, n) ||
          !CHECK(holds_from(context.seq_pos_min(sequence->id), n))) {
        return false;
      }
    }
    return true;
  }

  /// Whether `first` may be the first position of a sequence of `n` tokens. A state is that after
  /// the last token. Cells behind the window are free for others, even in a cache with room for
  /// all; the next token must not miss one.
  bool holds_from(std::int32_t first, std::int32_t n) const {
    if (n == 0) return first == -1;
    switch (kind) {
      case MemoryKind::kRecurrent:
      case MemoryKind::kHybrid:
        return first == n - 1;
      case MemoryKind::kSlidingWindow:
        return first >= 0 && first <= std::max(0, n - engine->info().n_swa + 1);
      default:
        return first == 0;
    }
  }

  /// That each sequence holds its tokens, and not others at the same positions: the logits after
  /// one more are those of a fresh context.
  void check_content() {
    for (const auto& sequence : sequences()) {
      if (sequence->tokens.empty() || loop->sequences().broken(sequence->context)) continue;
      const auto n = static_cast<std::int32_t>(sequence->tokens.size());
      if (n >= plan.n_ctx) continue;
      constexpr Token probe = 'x';
      const BatchItem item{probe, n, sequence->id, true};
      FailingBackend& context = context_of(*sequence);
      // Shared cells may be full: then there is no room for the probe.
      const DecodeStatus status = context.decode({&item, 1});
      if (status == DecodeStatus::kNoSlot) continue;
      if (!CHECK_EQ(status, DecodeStatus::kOk)) return;
      const auto row = context.logits(0);
      const std::vector<float> held(row.begin(), row.end());
      Tokens tokens = sequence->tokens;
      tokens.push_back(probe);
      const std::vector<float> fresh = evaluate(tokens);
      REQUIRE(held.size() == fresh.size() && !fresh.empty());
      float worst = 0;
      for (std::size_t i = 0; i < held.size(); ++i)
        worst = std::max(worst, std::abs(held[i] - fresh[i]));
      if (!CHECK(worst < kTolerance)) return;
    }
  }

  std::vector<float> evaluate(const Tokens& tokens) {
    pronk::BackendOptions options = plan.context;
    options.n_seq = options.n_outputs = 1;
    options.n_ctx_total = options.n_ctx_seq;
    options.n_batch = 64;
    options.kv_unified = true;
    if (!fresh_) fresh_ = engine->impl().make_backend(options, nullptr);
    CHECK(fresh_->seq_remove(0, -1, -1));
    std::vector<BatchItem> items;
    for (std::size_t first = 0; first < tokens.size(); first += 64) {
      items.clear();
      for (std::size_t i = first; i < std::min(first + 64, tokens.size()); ++i)
        items.push_back({tokens[i], static_cast<std::int32_t>(i), 0, i + 1 == tokens.size()});
      if (!CHECK_EQ(fresh_->decode(items), DecodeStatus::kOk)) return {};
    }
    const auto row = fresh_->logits(static_cast<std::int32_t>(items.size()) - 1);
    return {row.begin(), row.end()};
  }

  pronk::testing::ManualClock clock;
  const std::shared_ptr<InferenceEngine> engine;
  const MemoryKind kind;
  const pronk::PoolPlan plan;
  std::vector<FailingBackend*> contexts;  // owned by the loop
  std::shared_ptr<pronk::SchedulerState> state;
  std::shared_ptr<pronk::DecodeLoop> loop;
  std::unique_ptr<pronk::InferenceScheduler> scheduler;

 private:
  std::unique_ptr<Backend> fresh_;
};

struct Request {
  Tokens prompt;
  Generation generation;
};

/// Random work for one pool: new conversations with common beginnings, next turns, cancels, faults.
class Traffic {
 public:
  Traffic(Walk& walk, std::mt19937_64& random) : walk_(walk), random_(random) {
    stems_.resize(4);
    for (std::size_t i = 1; i < stems_.size(); ++i) {
      stems_[i] = i == 2 ? stems_[1] : Tokens();  // the second goes on where the first ends
      extend(stems_[i], 20 + up_to(60));
    }
  }

  void act() {
    if (up_to(3) == 0) ask();
    if (!running_.empty() && up_to(15) == 0)
      running_[random_() % running_.size()].generation.cancel();
    if (up_to(12) == 0) fail();
    settle();
  }
  void finish() {
    for (FailingBackend* context : walk_.contexts) context->next_fault.reset();
    int steps = 0;
    while (walk_.loop->step() && CHECK(walk_.check_positions())) CHECK(++steps < 20000);
    settle();
    CHECK(running_.empty());
  }

 private:
  int up_to(std::uint64_t n) { return static_cast<int>(random_() % n); }
  void extend(Tokens& tokens, int n) {
    for (int i = 0; i < n; ++i) tokens.push_back('a' + up_to(26));
  }

  void ask() {
    if (running_.size() > 12) return;
    Tokens prompt;
    if (!said_.empty() && up_to(2) == 0) {
      prompt = said_[random_() % said_.size()];  // the next turn, or the same one once more
      if (up_to(4) == 0) prompt.resize(1 + random_() % prompt.size());
    } else {
      prompt = stems_[random_() % stems_.size()];
    }
    extend(prompt, 1 + up_to(up_to(4) == 0 ? 90 : 12));
    if (static_cast<int>(prompt.size()) >= walk_.plan.n_ctx) return;
    pronk::GenerationParams params = by_hand::greedy(up_to(24));
    params.cache = up_to(8) != 0;
    params.cache_scope = up_to(8) == 0 ? "other" : "";
    Generation generation = walk_.scheduler->generate(prompt, params);
    running_.push_back({std::move(prompt), std::move(generation)});
  }

  void fail() {
    constexpr DecodeStatus statuses[] = {DecodeStatus::kNoSlot, DecodeStatus::kAborted,
                                         DecodeStatus::kInvalidBatch, DecodeStatus::kNoMemory,
                                         DecodeStatus::kFailed};
    FailingBackend::Fault fault{statuses[up_to(5)], 0};
    const bool partly =
        fault.status != DecodeStatus::kNoSlot && fault.status != DecodeStatus::kInvalidBatch;
    if (partly) fault.applied = random_() % 24;
    walk_.contexts[random_() % walk_.contexts.size()]->next_fault = fault;
  }

  void settle() {
    std::erase_if(running_, [this](Request& request) {
      if (!request.generation.done()) return false;
      try {
        const pronk::Completion done = request.generation.result();
        Tokens whole = std::move(request.prompt);
        whole.insert(whole.end(), done.tokens.begin(), done.tokens.end());
        said_.push_back(std::move(whole));
        if (said_.size() > 20) said_.erase(said_.begin());
      } catch (const pronk::BackendError&) {  // two faults in a row
      }
      return true;
    });
  }

  Walk& walk_;
  std::mt19937_64& random_;
  std::vector<Tokens> stems_;
  std::vector<Request> running_;
  std::vector<Tokens> said_;  // whole conversations that have ended
};

void walk(const std::string& model) {
  const char* directory = std::getenv("PRONK_TINY_DIR");
  if (directory == nullptr) return;
  const auto engine = InferenceEngine::load(
      (std::filesystem::path(directory) / ("tiny-" + model + "-0.gguf")).string());
  std::mt19937_64 random(check::seed());
  const auto up_to = [&](std::uint64_t n) { return static_cast<int>(random() % n); };
  std::uint64_t cancelled = 0;
  std::uint64_t reused = 0;
  for (int round = 0; round < kRounds; ++round) {
    pronk::PoolOptions options;
    const int arrangement = round % 5;
    options.layout = arrangement == 4 ? "isolated" : "batched";
    options.kv = arrangement % 2 == 0 ? "shared" : "split";
    options.n_ctx = 100 + up_to(200);
    options.n_batch = 1 + up_to(48);
    options.n_threads = 1;
    options.n_cached = up_to(5);
    options.flash_attention = "off";
    options.type_k = options.type_v = "f32";
    Walk pool(engine, options, 1 + up_to(5));
    Traffic traffic(pool, random);
    for (int step = 0; step < kSteps / kRounds; ++step) {
      traffic.act();
      pool.loop->step();
      if (!pool.check_positions()) return;
    }
    traffic.finish();
    const auto statistics = pool.scheduler->statistics();
    CHECK_EQ(statistics.running, 0);
    CHECK(statistics.completed > 0);
    cancelled += statistics.cancelled;
    reused += statistics.reused_tokens;
    pool.check_content();
  }
  CHECK(cancelled > 0);
  CHECK(reused > 0);
}

}  // namespace

TEST(llama_walk_plain) { walk("plain"); }
TEST(llama_walk_sliding_window) { walk("swa"); }
TEST(llama_walk_recurrent) { walk("recurrent"); }
TEST(llama_walk_hybrid) { walk("hybrid"); }
TEST(llama_walk_rollback) { walk("rollback"); }
