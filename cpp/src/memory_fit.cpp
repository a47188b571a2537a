#include "memory_fit.h"

#include <algorithm>
#include <utility>

#include "pronk/error.h"

namespace pronk::inline v0 {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
// What a pool takes besides all that is counted: work space of kernels, stacks, fragments. On a GPU
// that has no room for it llama.cpp ends the process.
constexpr std::uint64_t kReserveCpu = 16 * kMiB;
constexpr std::uint64_t kReserveGpu = 128 * kMiB;
// What kAuto leaves to others: a part of what is free, and at least so much.
constexpr std::uint64_t kHeadroomPart = 10;
constexpr std::uint64_t kHeadroomCpu = 64 * kMiB;
constexpr std::uint64_t kHeadroomGpu = 512 * kMiB;
// Address space beyond the contexts: arenas of malloc, stacks of the threads.
constexpr std::uint64_t kAddressSpace = 192 * kMiB;
constexpr std::uint64_t kAddressSpacePerThread = 16 * kMiB;

constexpr const char* kLimitedByUlimit = "of the address space that ulimit -v leaves";

constexpr std::int32_t kCells = 256;  // llama.cpp rounds a context up to a multiple
// The most permits that kAuto takes: more streams make each of them slower, and hardly more text.
constexpr std::int32_t kAutoLanes = 32;
constexpr std::int32_t kAutoLanesLow = 4;

std::string megabytes(std::uint64_t bytes) {
  return std::to_string((bytes + 999'999) / 1'000'000) + " MB";
}

/// The largest n in [1, limit] for which `good` holds, which holds for all below it too; 0 for
/// none.
template <class Good>
std::int32_t largest(std::int32_t limit, Good&& good) {
  std::int32_t low = 0, high = limit;
  while (low < high) {
    const std::int32_t middle = high - (high - low) / 2;
    if (good(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace

MemoryFit::MemoryFit(const ModelInfo& model, bool on_gpu, std::int32_t n_cpus,
                     const PoolOptions& options, FreeMemories free, ContextMemoryOf context_memory)
    : model_(model),
      on_gpu_(on_gpu),
      n_cpus_(n_cpus),
      options_(options),
      free_(std::move(free)),
      context_memory_(std::move(context_memory)) {}

// What a search asks for again and again is asked of the engine once.
const ContextMemory& MemoryFit::context(const BackendOptions& options) {
  const Key key{options.n_seq,   options.n_ctx_seq,  options.n_ctx_total,
                options.n_batch, options.kv_unified, options.flash_attention};
  const auto found = contexts_.find(key);
  return found != contexts_.end() ? found->second
                                  : contexts_.emplace(key, context_memory_(options)).first->second;
}

PoolFit MemoryFit::make(const PoolOptions& options, std::int32_t n_lanes) {
  PoolFit result;
  PoolPlan& plan = result.plan;
  plan = plan_pool(model_, on_gpu_, n_cpus_, options, n_lanes);
  const auto n_contexts = static_cast<std::uint64_t>(plan.n_contexts);
  const ContextMemory& one = context(plan.context);
  MemoryEstimate& memory = result.memory;
  add_contexts(memory.devices, one.devices, n_contexts);
  result.address_space = one.address_space * n_contexts;
  for (const FreeMemory& free : free_.devices) {
    for (DeviceMemory& device : memory.devices) {
      if (device.device == free.device) device.free = free.bytes;
    }
  }
  memory.max_concurrent = n_lanes;
  memory.n_ctx = plan.n_ctx;
  memory.n_cached = plan.n_cached;
  memory.layout = options.layout;
  memory.kv = plan.kv;
  memory.type_k = plan.context.type_k;
  memory.type_v = plan.context.type_v;
  memory.max_concurrent_reason = "asked for";
  memory.n_ctx_reason = plan.n_ctx_reason;
  memory.fits = !shortage(result, Leave::kNothing).any;
  return result;
}

bool MemoryFit::known(const PoolFit& fit) const {
  return !fit.memory.devices.empty() && (!free_.devices.empty() || free_.address_space);
}

// The worst of all devices.
MemoryFit::Shortage MemoryFit::shortage(const PoolFit& fit, Leave leave) const {
  const bool headroom = leave == Leave::kHeadroom;
  Shortage worst;
  const auto consider = [&](const DeviceMemory& device, const std::string& limit,
                            std::uint64_t besides, std::uint64_t free, std::uint64_t kept) {
    const std::uint64_t need = device.pool() + besides;
    const std::uint64_t have = free - std::min(free, kept);
    if (need <= have || (worst.any && need - have <= worst.need - worst.have)) return;
    worst = {true, device.device, limit, {}, need, have};
    worst.parts = "KV cache " + megabytes(device.kv) + ", compute buffers " +
                  megabytes(device.compute) + ", other " + megabytes(device.other + besides);
  };
  for (const DeviceMemory& device : fit.memory.devices) {
    for (const FreeMemory& free : free_.devices) {
      if (free.device != device.device) continue;
      const std::uint64_t most =
          std::max(free.bytes / kHeadroomPart, free.gpu ? kHeadroomGpu : kHeadroomCpu);
      consider(device, free.limit, 0, free.bytes,
               headroom ? most : (free.gpu ? kReserveGpu : kReserveCpu));
    }
    if (device.device == "CPU" && free_.address_space) {
      const auto threads = static_cast<std::uint64_t>(fit.plan.context.n_threads);
      consider(device, kLimitedByUlimit, fit.address_space, *free_.address_space,
               kAddressSpace + kAddressSpacePerThread * threads +
                   (headroom ? *free_.address_space / kHeadroomPart : 0));
    }
  }
  return worst;
}

bool MemoryFit::fits(const PoolOptions& options, std::int32_t n_lanes, Leave leave) {
  try {
    return !shortage(make(options, n_lanes), leave).any;
  } catch (const InvalidArgumentError&) {  // more than one llama_context can have
    return false;
  } catch (const InsufficientMemoryError&) {  // not even its estimate
    return false;
  }
}

std::int32_t MemoryFit::most_lanes(const PoolOptions& options, std::int32_t limit, Leave leave) {
  return largest(limit, [&](std::int32_t n) { return fits(options, n, leave); });
}

std::int32_t MemoryFit::largest_context(PoolOptions options, std::int32_t n_lanes,
                                        std::int32_t limit, Leave leave) {
  const auto tokens = [&](std::int32_t blocks) {
    return static_cast<std::int32_t>(std::min(std::int64_t{blocks} * kCells, std::int64_t{limit}));
  };
  return tokens(largest((limit - 1) / kCells + 1, [&](std::int32_t blocks) {
    options.n_ctx = tokens(blocks);
    return fits(options, n_lanes, leave);
  }));
}

std::int32_t MemoryFit::choose_lanes(PoolOptions options, std::string& reason) {
  // What each gets first is the default; what is left over goes to n_ctx afterwards.
  if (options.n_ctx == kAuto) options.n_ctx.reset();
  const bool batched = options.layout == "batched";
  const std::int32_t threads = options.n_threads.value_or(n_cpus_);
  std::int32_t limit = std::clamp(batched ? 2 * threads : threads, 1, kAutoLanes);
  reason = std::string("auto: ") +
           (batched ? "two for each compute thread" : "one for each compute thread");
  if (on_gpu_) {
    limit = batched ? kAutoLanes : kAutoLanesLow;
    reason = "auto: the most that pay on a GPU";
  } else if (batched && limit <= kAutoLanesLow) {
    limit = kAutoLanesLow;
    reason = "auto: " + std::to_string(limit) + " pay with few compute threads, too";
  } else if (limit == kAutoLanes) {
    reason = "auto: the most that pay";
  }
  const std::int32_t most = most_lanes(options, limit, Leave::kHeadroom);
  if (most == limit) return limit;
  reason = "auto: as many as fit with n_ctx " +
           std::to_string(make(options, std::max(most, 1)).plan.n_ctx) + " each";
  return std::max(most, 1);
}

std::int32_t MemoryFit::choose_context(const PoolOptions& options, std::int32_t n_lanes,
                                       std::string& reason) {
  PoolOptions usual = options;
  usual.n_ctx.reset();
  const PoolFit fit = make(usual, n_lanes);
  if (!known(fit)) {
    reason = "auto: " + fit.plan.n_ctx_reason + ", since what is free is not known";
    return fit.plan.n_ctx;
  }
  const std::int32_t limit = model_.n_ctx_train > 0 ? model_.n_ctx_train : kDefaultContext;
  const std::int32_t most = largest_context(options, n_lanes, limit, Leave::kHeadroom);
  reason = most == limit
               ? "auto: all that the model was trained on"
               : "auto: the most that fits with max_concurrent " + std::to_string(n_lanes);
  return most > 0 ? most : std::min(limit, kCells);
}

PoolFit MemoryFit::estimate(std::int32_t max_concurrent) {
  validate(options_);
  PoolOptions options = options_;
  std::string lanes_reason = "asked for", context_reason;
  if (max_concurrent == kAuto) max_concurrent = choose_lanes(options, lanes_reason);
  if (options.n_ctx == kAuto)
    options.n_ctx = choose_context(options, max_concurrent, context_reason);
  PoolFit result = make(options, max_concurrent);
  if (!context_reason.empty()) result.plan.n_ctx_reason = context_reason;
  result.memory.n_ctx_reason = result.plan.n_ctx_reason;
  result.memory.max_concurrent_reason = lanes_reason;
  return result;
}

PoolFit MemoryFit::fit(std::int32_t max_concurrent) {
  const PoolFit wanted = estimate(max_concurrent);
  PoolFit result = wanted;
  PoolOptions options = options_;
  options.n_ctx = wanted.plan.n_ctx;
  for (;;) {
    const Shortage lack = shortage(result, Leave::kNothing);
    if (!lack.any) break;
    // Idle sequences are a help, not a promise: without a word about them they give way first.
    if (options_.n_cached || result.plan.n_cached <= 0) refuse(result, lack);
    options.n_cached = result.plan.n_cached / 2;
    result = make(options, wanted.memory.max_concurrent);
    result.plan.n_cached_reason = "fewer than the default, since memory is short";
  }
  result.plan.n_ctx_reason = result.memory.n_ctx_reason = wanted.plan.n_ctx_reason;
  result.memory.max_concurrent_reason = wanted.memory.max_concurrent_reason;
  return result;
}

void MemoryFit::refuse(const PoolFit& fit, const Shortage& lack) {
  PoolOptions options = options_;
  options.n_ctx = fit.plan.n_ctx;
  if (fit.plan.batched) options.n_cached = fit.plan.n_cached;
  MemoryShortage shortage{lack.need, lack.have, 0, 0};
  const std::int32_t smaller = (fit.plan.n_ctx - 1) / kCells * kCells;
  if (smaller > 0) {
    shortage.n_ctx = largest_context(options, fit.plan.n_lanes, smaller, Leave::kNothing);
  }
  shortage.max_concurrent = most_lanes(options, fit.plan.n_lanes - 1, Leave::kNothing);
  std::string advice;
  if (shortage.n_ctx > 0) advice = "lower n_ctx to " + std::to_string(shortage.n_ctx);
  if (shortage.max_concurrent > 0) {
    advice += (advice.empty() ? "lower" : " or") + std::string(" max_concurrent to ") +
              std::to_string(shortage.max_concurrent);
  }
  if (advice.empty()) {
    advice = std::string(lack.limit == kLimitedByUlimit ? "raise that limit" : "free some memory") +
             ", lower n_batch or n_cached, or use a smaller model";
  }
  throw InsufficientMemoryError(
      "init_pool: got n_ctx " + std::to_string(fit.plan.n_ctx) + " with max_concurrent " +
          std::to_string(fit.plan.n_lanes) + ", which needs " + megabytes(lack.need) + " of " +
          lack.device + " (" + lack.parts + "), expected at most the " +
          std::to_string(lack.have / 1'000'000) + " MB free there " + lack.limit + ", " + advice,
      shortage);
}

}  // namespace pronk::inline v0
