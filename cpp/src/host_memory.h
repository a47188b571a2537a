// How much main memory a process can still take.
#pragma once

#include <cstdint>
#include <optional>

#include "read_file.h"

namespace pronk::inline v0 {

/// None where the system does not say.
struct HostMemory {
  /// Bytes that can be used without swapping or being killed: what the kernel calls available,
  /// within the memory limits of the control groups.
  std::optional<std::uint64_t> memory;
  const char* memory_limit = "";  ///< which of these it is, in words
  /// Bytes of address space that `ulimit -v` leaves; none without a limit.
  std::optional<std::uint64_t> address_space;
};

/// `mapped` bytes of files are in use by this process. The kernel counts them as available, since
/// it can read them again; who needs them all the time would rather have them stay.
HostMemory host_memory(std::uint64_t mapped = 0);

/// The same, with the file system injected.
HostMemory host_memory(std::uint64_t mapped, const ReadFile& read);

/// The lesser of both.
std::optional<std::uint64_t> available_host_memory();

}  // namespace pronk::inline v0
