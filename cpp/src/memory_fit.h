// Makes a pool fit into memory: what it takes, what is free, and the numbers that were left open.
// Pure: what contexts take and what is free are given.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>

#include "engine_impl.h"
#include "pool_plan.h"
#include "pronk/memory.h"

namespace pronk::inline v0 {

struct PoolFit {
  PoolPlan plan;
  MemoryEstimate memory;
  std::uint64_t address_space = 0;  ///< reserved besides, see ContextMemory
};

class MemoryFit {
 public:
  /// The engine's function of that name.
  using ContextMemoryOf = std::function<ContextMemory(const BackendOptions&)>;

  MemoryFit(const ModelInfo& model, bool on_gpu, std::int32_t n_cpus, const PoolOptions& options,
            FreeMemories free, ContextMemoryOf context_memory);

  /// The pool as asked for, kAuto replaced by numbers, whether it fits or not. Throws
  /// InvalidArgumentError, and what the engine throws.
  PoolFit estimate(std::int32_t max_concurrent);
  /// The same, with fewer idle sequences where that makes it fit and their number was left open.
  /// Throws InsufficientMemoryError, with what would fit, where nothing does.
  PoolFit fit(std::int32_t max_concurrent);

 private:
  struct Shortage {
    bool any = false;
    std::string device, limit;  // "CPU", "of main memory"
    std::string parts;          // what takes it
    std::uint64_t need = 0, have = 0;
  };
  enum class Leave { kNothing, kHeadroom };

  PoolFit make(const PoolOptions& options, std::int32_t n_lanes);
  const ContextMemory& context(const BackendOptions& options);
  Shortage shortage(const PoolFit& fit, Leave leave) const;
  bool fits(const PoolOptions& options, std::int32_t n_lanes, Leave leave);
  std::int32_t most_lanes(const PoolOptions& options, std::int32_t limit, Leave leave);
  std::int32_t largest_context(PoolOptions options, std::int32_t n_lanes, std::int32_t limit,
                               Leave leave);
  std::int32_t choose_lanes(PoolOptions options, std::string& reason);
  std::int32_t choose_context(const PoolOptions& options, std::int32_t n_lanes,
                              std::string& reason);
  bool known(const PoolFit& fit) const;
  [[noreturn]] void refuse(const PoolFit& fit, const Shortage& shortage);

  const ModelInfo model_;
  const bool on_gpu_;
  const std::int32_t n_cpus_;
  const PoolOptions options_;
  const FreeMemories free_;
  const ContextMemoryOf context_memory_;
  // n_seq, n_ctx_seq, n_ctx_total, n_batch, kv_unified, flash_attention: the rest is the same.
  using Key = std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t, bool, std::string>;
  std::map<Key, ContextMemory> contexts_;
};

}  // namespace pronk::inline v0
