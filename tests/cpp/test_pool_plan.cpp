// What a pool is made of, by model, device and options.
#include <string>

#include "check.h"
#include "pool_plan.h"
#include "pronk/error.h"

using pronk::InvalidArgumentError;
using pronk::MemoryKind;
using pronk::ModelInfo;
using pronk::PoolOptions;
using pronk::PoolPlan;

namespace {

ModelInfo model(MemoryKind kind = MemoryKind::kPlain) {
  ModelInfo info;
  info.memory_kind = kind;
  info.n_ctx_train = 8192;
  info.n_head = 9;
  info.n_vocab = 1000;
  return info;
}

PoolPlan plan(const PoolOptions& options = {}, std::int32_t n_lanes = 4, bool on_gpu = false,
              MemoryKind kind = MemoryKind::kPlain) {
  return pronk::plan_pool(model(kind), on_gpu, 2, options, n_lanes);
}

}  // namespace

TEST(plan_gives_every_permit_its_whole_context) {
  PoolOptions options;
  options.n_ctx = 1000;
  for (const std::string kv : {"shared", "split"}) {
    options.kv = kv;
    const PoolPlan p = plan(options, 5);
    CHECK_EQ(p.n_ctx, 1000);
    CHECK(p.context.n_ctx_total >= 5 * 1000);
    CHECK_EQ(p.context.kv_unified, kv == "shared");
  }
  options.layout = "isolated";
  const PoolPlan p = plan(options, 5);
  CHECK_EQ(p.n_contexts, 5);
  CHECK_EQ(p.context.n_seq, 1);
  CHECK_EQ(p.context.n_ctx_total, 1000);
}

TEST(plan_defaults_to_what_the_model_was_trained_on_within_reason) {
  CHECK_EQ(plan().n_ctx, 4096);
  ModelInfo small = model();
  small.n_ctx_train = 512;
  CHECK_EQ(pronk::plan_pool(small, false, 2, {}, 4).n_ctx, 512);
  small.n_ctx_train = 0;
  CHECK_EQ(pronk::plan_pool(small, false, 2, {}, 4).n_ctx, 4096);
}

TEST(plan_splits_the_cache_where_that_pays) {
  CHECK_EQ(plan().kv, std::string("split"));
  CHECK_EQ(plan({}, 1).kv, std::string("shared"));
  // In shared cells a window moves on over those that an earlier message is still needed for.
  CHECK_EQ(plan({}, 1, false, MemoryKind::kSlidingWindow).kv, std::string("split"));
  CHECK_EQ(plan({}, 4, false, MemoryKind::kRecurrent).kv, std::string("shared"));
  CHECK_EQ(plan({}, 4, false, MemoryKind::kHybrid).kv, std::string("shared"));
  PoolOptions asked;
  asked.kv = "shared";
  CHECK_EQ(plan(asked).kv, std::string("shared"));
  CHECK_EQ(plan(asked).kv_reason, std::string("asked for"));
  CHECK(!plan().kv_reason.empty());
}

TEST(plan_keeps_more_idle_sequences_where_they_are_small) {
  PoolOptions options;
  options.n_ctx = 1024;
  CHECK_EQ(plan(options, 2).context.n_seq, 2 + 16);
  options.n_ctx = 4096;
  CHECK_EQ(plan(options, 2).context.n_seq, 8);
  CHECK_EQ(plan(options, 4).context.n_seq, 4 + 8);
  options.n_cached = 1;
  CHECK_EQ(plan(options, 4).context.n_seq, 5);
}

TEST(plan_leaves_flash_attention_out_where_it_is_slower_and_scores_are_small) {
  CHECK_EQ(plan().context.flash_attention, std::string("off"));
  CHECK_EQ(plan({}, 4, true).context.flash_attention, std::string("auto"));
  PoolOptions options;
  options.flash_attention = "on";
  CHECK_EQ(plan(options).context.flash_attention, std::string("on"));
  CHECK_EQ(plan(options).flash_attention_reason, std::string("asked for"));
  options.flash_attention = "auto";
  options.type_v = "q8_0";  // needs it
  CHECK_EQ(plan(options).context.flash_attention, std::string("auto"));
  options.type_v = "f16";
  options.n_ctx = 1 << 20;
  options.kv = "shared";
  CHECK_EQ(plan(options).context.flash_attention, std::string("auto"));
}

TEST(plan_says_why_it_chose) {
  for (const bool on_gpu : {false, true}) {
    CHECK(!plan({}, 4, on_gpu).flash_attention_reason.empty());
    CHECK(plan({}, 4, on_gpu).flash_attention_reason != "asked for");
  }
  CHECK_EQ(plan().context.type_k, std::string("f16"));
  CHECK_EQ(plan().context.type_v, std::string("f16"));
  CHECK(plan().kv_type_reason != "asked for");
  PoolOptions options;
  options.type_k = "q8_0";
  options.type_v = "bf16";
  CHECK_EQ(plan(options).context.type_k, std::string("q8_0"));
  CHECK_EQ(plan(options).context.type_v, std::string("bf16"));
  CHECK_EQ(plan(options).kv_type_reason, std::string("asked for"));
}

TEST(plan_has_a_batch_for_every_sequence) {
  PoolOptions options;
  options.n_batch = 16;
  const PoolPlan p = plan(options, 64);
  CHECK_EQ(p.n_batch, 16);
  CHECK(p.context.n_batch >= p.context.n_seq);
  CHECK(p.context.n_outputs >= p.context.n_seq);
}

TEST(plan_stays_within_one_context) {
  CHECK_EQ(plan({}, 256).context.n_seq, 256);
  CHECK_THROWS(InvalidArgumentError, plan({}, 257));
  PoolOptions options;
  options.n_ctx = 1 << 26;
  CHECK_THROWS(InvalidArgumentError, plan(options, 256));
  options.layout = "isolated";
  CHECK_EQ(plan(options, 257).n_contexts, 257);
}

TEST(plan_chooses_the_number_of_threads_unless_told) {
  CHECK_EQ(plan().context.n_threads, 2);
  CHECK(plan().adapt_threads);
  PoolOptions options;
  options.n_threads = 7;
  CHECK_EQ(plan(options).context.n_threads, 7);
  CHECK(!plan(options).adapt_threads);
  options.n_threads.reset();
  options.layout = "isolated";
  CHECK(!plan(options).adapt_threads);
}
