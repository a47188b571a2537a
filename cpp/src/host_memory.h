// How much main memory a process can still take.
#pragma once

#include <cstdint>
#include <optional>

#include "cpu_count.h"

namespace pronk::inline v0 {

/// Bytes that can be allocated and used without swapping or being killed: what the kernel calls
/// available, limited by the memory limit of the control group. None where the system does not say.
std::optional<std::uint64_t> available_host_memory();

/// The same, with the file system injected.
std::optional<std::uint64_t> available_host_memory(const cpu_count::ReadFile& read);

}  // namespace pronk::inline v0
