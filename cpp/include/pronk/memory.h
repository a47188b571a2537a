// What a pool takes of each device, before it is made and afterwards.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pronk/api.h"

namespace pronk::inline v0 {

/// In place of n_ctx or max_concurrent: as much as memory allows. See docs/memory.md for the rule.
inline constexpr std::int32_t kAuto = -1;

/// Bytes of one device.
struct DeviceMemory {
  std::string device;         ///< as in Device::name; "CPU" for all of main memory, pinned too
  std::uint64_t weights = 0;  ///< of the model: the engine holds them already
  std::uint64_t kv = 0;       ///< KV cache and recurrent states
  std::uint64_t compute = 0;  ///< buffers for intermediate results
  /// What llama.cpp's own accounting leaves out: rows of logits, tables of cells once they are
  /// full.
  std::uint64_t other = 0;
  std::uint64_t free = 0;  ///< free now, with the engine loaded; 0 where that is not known

  /// What making a pool takes.
  std::uint64_t pool() const { return kv + compute + other; }
  std::uint64_t total() const { return weights + pool(); }
};

/// What a pool would be made of, and what it would take.
struct MemoryEstimate {
  std::vector<DeviceMemory> devices;  ///< empty where the engine cannot tell
  std::int32_t max_concurrent = 0;
  std::int32_t n_ctx = 0;     ///< tokens of each permit
  std::int32_t n_cached = 0;  ///< idle sequences, as many as there are without a shortage
  std::string layout;         ///< "batched" or "isolated"
  std::string kv;             ///< "shared" or "split", empty in layout "isolated"
  std::string type_k, type_v;
  std::string max_concurrent_reason, n_ctx_reason;  ///< where these numbers come from
  bool fits = true;  ///< whether what is free takes it; true where that is not known
};

}  // namespace pronk::inline v0
