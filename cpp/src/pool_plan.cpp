#include "pool_plan.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "pronk/error.h"

namespace pronk::inline v0 {
namespace {

constexpr std::int32_t kMaxContext = 1 << 26;
constexpr std::int64_t kMaxTotalContext = std::int64_t{1} << 30;
constexpr std::int32_t kMaxBatch = 1 << 16;
constexpr std::int32_t kMaxThreads = 512;
constexpr std::int32_t kMaxConcurrent = 4096;
// Prompt tokens per call on a CPU in layout "isolated": what a running neighbour waits for. It must
// not depend on the neighbours, since the size of a chunk shows in the last bits of the logits.
constexpr std::int32_t kIsolatedCpuBatch = 128;
constexpr std::int32_t kCpuBatch = 256;
constexpr std::int32_t kDefaultBatch = 512;
constexpr std::int32_t kDefaultCached = 16;
// Cells that split streams may take by default, lanes included, beyond two idle ones per lane.
constexpr std::int32_t kSplitCells = 32768;

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

// Bytes of attention scores up to which a CPU does without flash attention, where it is the slower
// way. The scores are n_head x n_batch x cells x 4 bytes in the compute buffer.
constexpr std::int64_t kMaxScores = std::int64_t{256} << 20;

bool quantised(const std::string& type) { return type[0] == 'q'; }

void choose_kv(PoolPlan& plan, const ModelInfo& model, const PoolOptions& options) {
  if (options.kv != "auto") {
    plan.kv = options.kv;
    plan.kv_reason = "asked for";
  } else if (plan.n_lanes == 1 && model.memory_kind != MemoryKind::kSlidingWindow) {
    plan.kv = "shared";
    plan.kv_reason = "a single permit shares its cells with cached prefixes only";
  } else if (model.memory_kind == MemoryKind::kRecurrent ||
             model.memory_kind == MemoryKind::kHybrid) {
    plan.kv = "shared";
    plan.kv_reason = "a recurrent state has no cells to attend to";
  } else {
    plan.kv = "split";
    plan.kv_reason = "a token attends to the cells of its own sequence only";
  }
}

void choose_flash_attention(PoolPlan& plan, const ModelInfo& model, bool on_gpu) {
  BackendOptions& context = plan.context;
  std::string& reason = plan.flash_attention_reason;
  if (context.flash_attention != "auto") {
    reason = "asked for";
    return;
  }
  reason = "llama.cpp uses it where the devices can";
  if (on_gpu) return;
  if (quantised(context.type_v)) {
    reason = "quantised values need it";
    return;
  }
  const std::int64_t cells = context.kv_unified ? context.n_ctx_total : context.n_ctx_seq;
  const std::int64_t scores =
      std::int64_t{model.n_head} * context.n_batch * cells * std::int64_t{sizeof(float)};
  if (scores <= kMaxScores) {
    context.flash_attention = "off";
    reason = "a CPU is faster without, and the scores are small";
  } else {
    reason = "the attention scores would take " + std::to_string(scores >> 20) + " MiB without";
  }
}

void choose_kv_types(PoolPlan& plan, const PoolOptions& options) {
  plan.context.type_k = options.type_k;
  plan.context.type_v = options.type_v;
  plan.kv_type_reason = "asked for";
  for (std::string* type : {&plan.context.type_k, &plan.context.type_v}) {
    if (*type != "auto") continue;
    *type = "f16";
    plan.kv_type_reason = "f16 is what llama.cpp computes with; a smaller type changes the answers";
  }
}

}  // namespace

void check_concurrent(std::int32_t max_concurrent) {
  if (max_concurrent >= 1 && max_concurrent <= kMaxConcurrent) return;
  throw InvalidArgumentError("max_concurrent: got " + std::to_string(max_concurrent) +
                             ", expected an integer in [1, " + std::to_string(kMaxConcurrent) +
                             "], choose how many inferences may run at once");
}

void validate(const PoolOptions& options) {
  check_word("layout", options.layout, {"batched", "isolated"});
  check_word("kv", options.kv, {"auto", "shared", "split"});
  if (options.n_cached) check_range("n_cached", *options.n_cached, 0, kMaxSequences);
  if (!(options.max_step_ms > 0 && options.max_step_ms <= 1e6)) {
    throw InvalidArgumentError(
        "max_step_ms: got " + std::to_string(options.max_step_ms) +
        ", expected a number in (0, 1000000], choose a time in milliseconds");
  }
  if (options.n_ctx && *options.n_ctx != kAuto)
    check_range("n_ctx", *options.n_ctx, 2, kMaxContext);
  if (options.cache_tokens) check_range("cache_tokens", *options.cache_tokens, 0, kMaxContext);
  if (options.n_batch) check_range("n_batch", *options.n_batch, 1, kMaxBatch);
  if (options.n_threads) check_range("n_threads", *options.n_threads, 1, kMaxThreads);
  check_word("flash_attention", options.flash_attention, {"auto", "on", "off"});
  for (const auto& [name, type] :
       {std::pair{"type_k", &options.type_k}, std::pair{"type_v", &options.type_v}}) {
    check_word(name, *type, {"auto", "f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"});
  }
}

PoolPlan plan_pool(const ModelInfo& model, bool on_gpu, std::int32_t n_cpus,
                   const PoolOptions& options, std::int32_t n_lanes) {
  validate(options);
  PoolPlan plan;
  plan.batched = options.layout == "batched";
  plan.n_lanes = n_lanes;
  plan.n_contexts = plan.batched ? 1 : n_lanes;
  if (plan.batched) check_range("max_concurrent", n_lanes, 1, kMaxSequences);
  const std::int32_t trained = model.n_ctx_train > 0 ? model.n_ctx_train : kDefaultContext;
  plan.n_ctx = options.n_ctx.value_or(std::min(trained, kDefaultContext));
  plan.n_ctx_reason = options.n_ctx                     ? "asked for"
                      : plan.n_ctx == model.n_ctx_train ? "all that the model was trained on"
                                                        : "the default";
  const std::int32_t default_batch =
      on_gpu ? kDefaultBatch : (plan.batched ? kCpuBatch : kIsolatedCpuBatch);
  plan.n_batch = std::min(plan.n_ctx, options.n_batch.value_or(default_batch));
  if (plan.batched) choose_kv(plan, model, options);

  BackendOptions& context = plan.context;
  context.kv_unified = plan.kv != "split";
  if (plan.batched) {
    // Cells are set aside for every split stream, for shared ones only once.
    const std::int32_t affordable = std::max(2 * n_lanes, kSplitCells / plan.n_ctx - n_lanes);
    const std::int32_t n_cached = options.n_cached.value_or(
        context.kv_unified ? kDefaultCached : std::min(affordable, kDefaultCached));
    context.n_seq = std::min(n_lanes + n_cached, kMaxSequences);
    plan.n_cached = context.n_seq - n_lanes;
    plan.n_cached_reason = options.n_cached                  ? "asked for"
                           : plan.n_cached == kDefaultCached ? "the default"
                                                             : "each has cells of its own";
  }
  context.n_ctx_seq = plan.n_ctx;
  const std::int64_t streams = context.kv_unified ? (plan.batched ? n_lanes : 1) : context.n_seq;
  if (plan.n_ctx * streams > kMaxTotalContext) {
    throw InvalidArgumentError("n_ctx: got " + std::to_string(plan.n_ctx) + " for each of " +
                               std::to_string(streams) + " sequences, expected at most " +
                               std::to_string(kMaxTotalContext) +
                               " tokens in all, lower n_ctx, max_concurrent or n_cached");
  }
  context.n_ctx_total = static_cast<std::int32_t>(plan.n_ctx * streams);
  // llama.cpp wants room for one token of every sequence, whatever our batches are.
  context.n_batch = std::max(plan.n_batch, context.n_seq);
  context.n_outputs = context.n_seq;
  context.n_threads = options.n_threads.value_or(n_cpus);
  context.flash_attention = options.flash_attention;
  choose_kv_types(plan, options);
  choose_flash_attention(plan, model, on_gpu);
  // The number of threads shows in the last bits of the logits, which layout "isolated" keeps
  // fixed.
  plan.adapt_threads = plan.batched && !options.n_threads && !on_gpu;
  return plan;
}

}  // namespace pronk::inline v0
