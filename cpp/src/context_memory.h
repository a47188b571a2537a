// Sums of what contexts take, by device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "pronk/memory.h"

namespace pronk::inline v0 {

/// Of one context.
struct ContextMemory {
  std::vector<DeviceMemory> devices;  ///< empty where that is not known
  /// Address space that is reserved besides and hardly used; only `ulimit -v` counts it.
  std::uint64_t address_space = 0;
};

/// The entry of a device, added where there is none.
inline DeviceMemory& entry_of(std::vector<DeviceMemory>& all, const std::string& device) {
  for (DeviceMemory& entry : all) {
    if (entry.device == device) return entry;
  }
  all.emplace_back().device = device;
  return all.back();
}

/// Adds `count` contexts of the same model: the weights are there once.
inline void add_contexts(std::vector<DeviceMemory>& sum, const std::vector<DeviceMemory>& context,
                         std::uint64_t count = 1) {
  for (const DeviceMemory& part : context) {
    DeviceMemory& entry = entry_of(sum, part.device);
    entry.weights = std::max(entry.weights, part.weights);
    entry.kv += part.kv * count;
    entry.compute += part.compute * count;
    entry.other += part.other * count;
  }
}

}  // namespace pronk::inline v0
