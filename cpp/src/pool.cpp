#include "pool.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

#include "cpu_count.h"
#include "engine_impl.h"
#include "pronk/error.h"

namespace pronk::inline v0 {
namespace {

// What a context gets by default where the model allows it: more would surprise by its memory.
constexpr std::int32_t kDefaultContext = 4096;
constexpr std::int32_t kMaxContext = 1 << 26;
constexpr std::int64_t kMaxTotalContext = std::int64_t{1} << 30;
constexpr std::int32_t kMaxBatch = 1 << 16;
constexpr std::int32_t kMaxThreads = 512;
constexpr std::int32_t kMaxSamplingThreads = 8;
constexpr std::int32_t kMaxSequences = 256;  // of one llama_context
// Prompt tokens per call on a CPU in layout "isolated": what a running neighbour waits for. It must
// not depend on the neighbours, since the size of a chunk shows in the last bits of the logits.
constexpr std::int32_t kIsolatedCpuBatch = 128;
constexpr std::int32_t kDefaultBatch = 512;

template <typename T>
void check_range(const char* name, T value, T low, T high) {
  if (value < low || value > high) {
    throw InvalidArgumentError(std::string(name) + ": got " + std::to_string(value) +
                               ", expected an integer in [" + std::to_string(low) + ", " +
                               std::to_string(high) + "], choose a value in that range");
  }
}

void check_word(const char* name, const std::string& value,
                std::initializer_list<std::string_view> allowed) {
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
  std::string words;
  for (const auto word : allowed)
    words += (words.empty() ? "" : ", ") + ("'" + std::string(word) + "'");
  throw InvalidArgumentError(std::string(name) + ": got '" + value + "', expected one of " + words +
                             ", choose one of them");
}

bool computes_on_gpu(const InferenceEngine& engine) {
  const auto devices = engine.devices();
  return std::any_of(devices.begin(), devices.end(),
                     [](const Device& d) { return d.kind != "cpu"; });
}

}  // namespace

void validate(const PoolOptions& options) {
  check_word("layout", options.layout, {"batched", "isolated"});
  check_word("kv", options.kv, {"auto", "shared", "split"});
  check_range("n_cached", options.n_cached, 0, kMaxSequences);
  if (!(options.max_step_ms > 0 && options.max_step_ms <= 1e6)) {
    throw InvalidArgumentError(
        "max_step_ms: got " + std::to_string(options.max_step_ms) +
        ", expected a number in (0, 1000000], choose a time in milliseconds");
  }
  if (options.n_ctx) check_range("n_ctx", *options.n_ctx, 2, kMaxContext);
  if (options.n_batch) check_range("n_batch", *options.n_batch, 1, kMaxBatch);
  if (options.n_threads) check_range("n_threads", *options.n_threads, 1, kMaxThreads);
  check_word("flash_attention", options.flash_attention, {"auto", "on", "off"});
  for (const auto& [name, type] :
       {std::pair{"type_k", &options.type_k}, std::pair{"type_v", &options.type_v}}) {
    check_word(name, *type, {"f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"});
  }
}

std::shared_ptr<DecodeLoop> make_pool(std::shared_ptr<InferenceEngine> engine,
                                      const PoolOptions& options, std::int32_t n_lanes,
                                      std::shared_ptr<Clock> clock) {
  validate(options);
  const ModelInfo& model = engine->info();
  const std::int32_t trained = model.n_ctx_train > 0 ? model.n_ctx_train : kDefaultContext;
  const std::int32_t n_ctx = options.n_ctx.value_or(std::min(trained, kDefaultContext));
  const bool batched = options.layout == "batched";
  if (batched) check_range("max_concurrent", n_lanes, 1, kMaxSequences);
  const bool small_chunks = !batched && !computes_on_gpu(*engine);
  const std::int32_t n_batch =
      std::min(n_ctx, options.n_batch.value_or(small_chunks ? kIsolatedCpuBatch : kDefaultBatch));

  BackendOptions context;
  context.n_seq = batched ? std::min(n_lanes + options.n_cached, kMaxSequences) : 1;
  context.kv_unified = !batched || options.kv != "split";
  context.n_ctx_seq = n_ctx;
  const std::int64_t total =
      std::int64_t{n_ctx} * (batched ? (context.kv_unified ? n_lanes : context.n_seq) : 1);
  if (total > kMaxTotalContext) {
    throw InvalidArgumentError("n_ctx: got " + std::to_string(n_ctx) + " for each of " +
                               std::to_string(n_lanes) + " permits, expected at most " +
                               std::to_string(kMaxTotalContext) +
                               " tokens in all, lower n_ctx or max_concurrent");
  }
  context.n_ctx_total = static_cast<std::int32_t>(total);
  // llama.cpp wants room for one token of every sequence, whatever our batches are.
  context.n_batch = std::max(n_batch, context.n_seq);
  context.n_outputs = context.n_seq;
  context.n_threads = options.n_threads.value_or(default_thread_count());
  context.flash_attention = options.flash_attention;
  context.type_k = options.type_k;
  context.type_v = options.type_v;

  LoopOptions loop;
  loop.n_lanes = n_lanes;
  loop.n_ctx = n_ctx;
  loop.n_contexts = batched ? 1 : n_lanes;
  if (batched) {
    loop.kv = context.kv_unified ? "shared" : "split";
    loop.kv_reason = options.kv == "auto" ? "the default" : "asked for";
  }
  loop.n_sampling_threads = std::min(context.n_threads, kMaxSamplingThreads);
  // The number of threads shows in the last bits of the logits, which layout "isolated" keeps
  // fixed.
  loop.adapt_threads = batched && !options.n_threads && !computes_on_gpu(*engine);
  loop.n_threads = context.n_threads;
  loop.exact_reuse = !batched;
  loop.share_prefixes = batched;
  loop.policy.n_batch = n_batch;
  loop.policy.max_step_seconds = options.max_step_ms / 1000;
  loop.make_context = [engine, context, threads = engine->impl().make_threads(context.n_threads)](
                          std::int32_t) { return engine->impl().make_backend(context, threads); };
  return std::make_shared<DecodeLoop>(loop, engine, std::move(clock));
}

}  // namespace pronk::inline v0
