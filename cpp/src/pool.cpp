#include "pool.h"

#include <algorithm>
#include <utility>

#include "cpu_count.h"
#include "engine_impl.h"
#include "pool_plan.h"
#include "pronk/error.h"

namespace pronk::inline v0 {
namespace {

constexpr std::int32_t kMaxSamplingThreads = 8;

bool computes_on_gpu(const InferenceEngine& engine) {
  const auto devices = engine.devices();
  return std::any_of(devices.begin(), devices.end(),
                     [](const Device& d) { return d.kind != "cpu"; });
}

std::shared_ptr<DecodeLoop> make_loop(const std::shared_ptr<InferenceEngine>& engine,
                                      const PoolPlan& plan, const PoolOptions& options,
                                      std::shared_ptr<Clock> clock, std::shared_ptr<Trace> trace,
                                      const PoolMaker::Flag& cancelled) {
  LoopOptions loop;
  loop.n_lanes = plan.n_lanes;
  loop.n_ctx = plan.n_ctx;
  loop.n_contexts = plan.n_contexts;
  loop.kv = plan.kv;
  loop.kv_reason = plan.kv_reason;
  loop.flash_attention = plan.context.flash_attention;
  loop.flash_attention_reason = plan.flash_attention_reason;
  loop.type_k = plan.context.type_k;
  loop.type_v = plan.context.type_v;
  loop.kv_type_reason = plan.kv_type_reason;
  loop.n_threads = plan.context.n_threads;
  loop.adapt_threads = plan.adapt_threads;
  loop.n_sampling_threads = std::min(plan.context.n_threads, kMaxSamplingThreads);
  loop.exact_reuse = !plan.batched;
  loop.share_prefixes = plan.batched;
  loop.share_cells = plan.batched && plan.kv == "shared";
  loop.max_idle_tokens = options.cache_tokens ? *options.cache_tokens : -1;
  loop.consecutive_lanes = plan.kv == "split";
  loop.policy.n_batch = plan.n_batch;
  loop.policy.max_step_seconds = options.max_step_ms / 1000;
  auto threads = engine->impl().make_threads(plan.context.n_threads);
  loop.make_context = [engine, context = plan.context, threads, cancelled](std::int32_t) {
    if (*cancelled) {
      throw Error(ErrorCode::kError,
                  "init_pool: got turned away from, expected to be waited for, call it again");
    }
    return engine->impl().make_backend(context, threads);
  };
  return std::make_shared<DecodeLoop>(loop, engine, std::move(clock), std::move(trace));
}

}  // namespace

std::shared_ptr<DecodeLoop> make_pool(std::shared_ptr<InferenceEngine> engine,
                                      const PoolOptions& options, std::int32_t n_lanes,
                                      std::shared_ptr<Clock> clock, std::shared_ptr<Trace> trace,
                                      const PoolMaker::Flag& cancelled) {
  PoolOptions wanted = options;
  for (;;) {
    const PoolPlan plan = plan_pool(engine->info(), computes_on_gpu(*engine),
                                    default_thread_count(), wanted, n_lanes);
    try {
      return make_loop(engine, plan, wanted, clock, trace, cancelled);
    } catch (const InsufficientMemoryError&) {
      // Idle sequences are a help, not a promise: without a word about them they give way first.
      const std::int32_t n_cached = plan.context.n_seq - n_lanes;
      if (options.n_cached || !plan.batched || n_cached <= 0) throw;
      wanted.n_cached = n_cached / 2;
    }
  }
}

}  // namespace pronk::inline v0
