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

struct PoolPlan {
  BackendOptions context;  ///< of each context
  std::int32_t n_contexts = 1;
  std::int32_t n_lanes = 1;
  std::int32_t n_ctx = 0;    ///< tokens of one permit
  std::int32_t n_batch = 0;  ///< tokens of one call of the model
  bool batched = true;
  bool adapt_threads = false;
  std::string kv, kv_reason;  ///< empty in layout "isolated"
  std::string flash_attention_reason;
  std::string kv_type_reason;
};

/// `on_gpu` says whether the model computes on one; `n_cpus` is the default for n_threads. Throws
/// InvalidArgumentError.
PoolPlan plan_pool(const ModelInfo& model, bool on_gpu, std::int32_t n_cpus,
                   const PoolOptions& options, std::int32_t n_lanes);

}  // namespace pronk::inline v0
