// What a pool will be made of: pool options with every choice made, and why. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "engine_impl.h"
#include "pronk/engine.h"
#include "pronk/scheduler.h"

namespace pronk::inline v0 {

/// Throws InvalidArgumentError that names the first option out of range.
void validate(const PoolOptions& options);

/// Throws InvalidArgumentError unless it is in [1, 4096].
void check_concurrent(std::int32_t max_concurrent);

struct PoolPlan {
  BackendOptions context;  ///< of each context
  std::int32_t n_contexts = 1;
  std::int32_t n_lanes = 1;
  std::int32_t n_ctx = 0;  ///< tokens of one permit
  std::string n_ctx_reason;
  std::int32_t n_cached = 0;  ///< idle sequences besides the lanes
  std::string n_cached_reason;
  std::int32_t n_batch = 0;  ///< tokens of one call of the model
  bool batched = true;
  bool adapt_threads = false;
  std::string kv, kv_reason;  ///< empty in layout "isolated"
  std::string flash_attention_reason;
  std::string kv_type_reason;
};

/// What a context has by default: more would surprise by its memory.
inline constexpr std::int32_t kDefaultContext = 4096;
inline constexpr std::int32_t kMaxSequences = 256;  ///< of one llama_context

/// `on_gpu` says whether the model computes on one; `n_cpus` is the default for n_threads. n_ctx
/// and n_lanes are numbers here, not kAuto. Throws InvalidArgumentError.
PoolPlan plan_pool(const ModelInfo& model, bool on_gpu, std::int32_t n_cpus,
                   const PoolOptions& options, std::int32_t n_lanes);

}  // namespace pronk::inline v0
