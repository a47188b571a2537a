#include "pool.h"

#include <algorithm>
#include <utility>

#include "big_stack.h"
#include "cpu_count.h"
#include "engine_impl.h"
#include "memory_fit.h"
#include "pool_plan.h"
#include "pronk/error.h"

namespace pronk::inline v0 {
namespace {

constexpr std::int32_t kMaxSamplingThreads = 8;
// llama.cpp makes a context on the stack of who asks for it, which may be a small thread's.
constexpr std::size_t kStack = std::size_t{8} << 20;

bool computes_on_gpu(const InferenceEngine& engine) {
  const auto devices = engine.devices();
  return std::any_of(devices.begin(), devices.end(),
                     [](const Device& d) { return d.kind != "cpu"; });
}

MemoryFit fit_to(const InferenceEngine& engine, const PoolOptions& options) {
  EngineImpl& impl = engine.impl();
  return {engine.info(),
          computes_on_gpu(engine),
          default_thread_count(),
          options,
          impl.free_memory(),
          [&impl](const BackendOptions& context) { return impl.context_memory(context); }};
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
  loop.n_ctx_reason = plan.n_ctx_reason;
  loop.n_cached = plan.n_cached;
  loop.n_cached_reason = plan.n_cached_reason;
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
    PoolPlan plan = fit_to(*engine, wanted).fit(n_lanes).plan;
    if (!options.n_cached && wanted.n_cached) plan.n_cached_reason = "others were refused memory";
    try {
      return make_loop(engine, plan, wanted, clock, trace, cancelled);
    } catch (const InsufficientMemoryError&) {
      // More than was foretold, or somebody else was quicker. Here too they give way first.
      if (options.n_cached || plan.n_cached <= 0) throw;
      wanted.n_cached = plan.n_cached / 2;
    }
  }
}

MemoryEstimate estimate_pool(const InferenceEngine& engine, const PoolOptions& options,
                             std::int32_t max_concurrent) {
  // The options are at fault before the model is.
  validate(options);
  MemoryEstimate result;
  run_on_big_stack(kStack,
                   [&] { result = fit_to(engine, options).estimate(max_concurrent).memory; });
  return result;
}

}  // namespace pronk::inline v0
