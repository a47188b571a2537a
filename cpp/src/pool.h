// Turns pool options into a decode loop with its contexts.
#pragma once

#include <memory>

#include "clock.h"
#include "decode_loop.h"
#include "pool_maker.h"
#include "pronk/engine.h"
#include "pronk/scheduler.h"

namespace pronk::inline v0 {

/// A loop with `n_lanes` lanes, not started. Throws InvalidArgumentError, InsufficientMemoryError,
/// BackendError, and Error soon after `cancelled` was set.
std::shared_ptr<DecodeLoop> make_pool(std::shared_ptr<InferenceEngine> engine,
                                      const PoolOptions& options, std::int32_t n_lanes,
                                      std::shared_ptr<Clock> clock, std::shared_ptr<Trace> trace,
                                      const PoolMaker::Flag& cancelled);

/// What make_pool() would take; max_concurrent may be kAuto. Throws InvalidArgumentError,
/// BackendError, InsufficientMemoryError.
MemoryEstimate estimate_pool(const InferenceEngine& engine, const PoolOptions& options,
                             std::int32_t max_concurrent);

}  // namespace pronk::inline v0
