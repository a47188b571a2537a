// How many compute threads suit this process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "read_file.h"

namespace pronk::inline v0 {

/// The default for n_threads, at least 1: CPUs that this process may run on, limited by the CPU
/// quota of its control group; above 8 CPUs only one per physical core, which two hardware threads
/// share. On macOS the performance cores.
std::int32_t default_thread_count();

/// The parts of it, with the file system injected.
namespace cpu_count {

/// CPUs of a quota, rounded up, by cgroup v2 or v1; the tightest of the process's own group and its
/// parents. None without one.
std::optional<std::int32_t> quota(const ReadFile& read);

/// Physical cores among `cpus`: CPUs that are each other's hardware threads count once.
std::int32_t physical_cores(const std::vector<std::int32_t>& cpus, const ReadFile& read);

/// The rule itself.
std::int32_t choose(const std::vector<std::int32_t>& cpus, const ReadFile& read);

}  // namespace cpu_count
}  // namespace pronk::inline v0
