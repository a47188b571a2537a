#include "host_memory.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string>
#include <string_view>

namespace pronk::inline v0 {
namespace {

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

/// The number that follows `name` at the start of a line.
std::optional<std::uint64_t> field(const std::string& text, std::string_view name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    const std::size_t digits = line.find_first_of("0123456789", name.size());
    return digits == std::string::npos ? std::nullopt
                                       : number(std::string_view(line).substr(digits));
  }
  return std::nullopt;
}

/// What one group may still take. Cached file pages count as used there, but the kernel gives them
/// up; not so those in use, `mapped`, of which some may be counted and others not be read yet.
std::optional<std::uint64_t> left_in(const std::string& directory, const ReadFile& read, bool v2,
                                     std::uint64_t mapped) {
  const auto value = [&](const char* file) { return number(read(directory + file).value_or("")); };
  auto limit = value(v2 ? "/memory.max" : "/memory.limit_in_bytes");
  // Beyond this one the kernel does not kill, but slows down to a crawl.
  if (const auto high = v2 ? value("/memory.high") : std::nullopt)
    limit = std::min(limit.value_or(*high), *high);
  const auto used = value(v2 ? "/memory.current" : "/memory.usage_in_bytes");
  if (!limit || !used) return std::nullopt;
  const std::string statistics = read(directory + "/memory.stat").value_or("");
  const std::uint64_t idle =
      field(statistics, v2 ? "inactive_file " : "total_inactive_file ").value_or(0);
  const std::uint64_t active =
      field(statistics, v2 ? "active_file " : "total_active_file ").value_or(0);
  const std::uint64_t held = *used - std::min(*used, idle) + mapped - std::min(mapped, active);
  return *limit - std::min(*limit, held);
}

/// Whether a line of /proc/self/cgroup, "7:cpu,memory:/path", is of the hierarchy with the memory
/// limits.
bool has_memory_controller(std::string_view line) {
  const std::size_t begin = line.find(':');
  if (begin == std::string_view::npos) return false;
  const std::size_t end = line.find(':', begin + 1);
  const std::string names = "," + std::string(line.substr(begin + 1, end - begin - 1)) + ",";
  return names.find(",memory,") != std::string::npos;
}

std::optional<std::uint64_t> left_in_groups(const ReadFile& read, std::uint64_t mapped) {
  std::optional<std::uint64_t> result;
  std::istringstream lines(read("/proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t path_at = line.find(":/");
    if (path_at == std::string::npos) continue;
    const bool v2 = line.starts_with("0::");
    if (!v2 && !has_memory_controller(line)) continue;
    const std::string mount = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    // The limit of a group is also that of every group below it.
    for (std::string path = line.substr(path_at + 1);; path.resize(path.rfind('/'))) {
      const bool root = path.size() <= 1;
      if (const auto left = left_in(root ? mount : mount + path, read, v2, mapped)) {
        result = std::min(result.value_or(*left), *left);
      }
      if (root) break;
    }
  }
  return result;
}

std::optional<std::uint64_t> left_in_address_space(const ReadFile& read) {
  const auto limit = field(read("/proc/self/limits").value_or(""), "Max address space");
  const auto used = field(read("/proc/self/status").value_or(""), "VmSize:");
  if (!limit || !used) return std::nullopt;
  return *limit - std::min(*limit, *used * 1024);
}

}  // namespace

HostMemory host_memory(std::uint64_t mapped, const ReadFile& read) {
  HostMemory result;
  if (const auto kib = field(read("/proc/meminfo").value_or(""), "MemAvailable:")) {
    const std::uint64_t available = *kib * 1024;
    result.memory = available - std::min(available, mapped);
    result.memory_limit = "of main memory";
  }
  const auto left = left_in_groups(read, mapped);
  if (left && (!result.memory || *left < *result.memory)) {
    result.memory = left;
    result.memory_limit = "of the control group's memory limit";
  }
  result.address_space = left_in_address_space(read);
  return result;
}

HostMemory host_memory(std::uint64_t mapped) { return host_memory(mapped, read_file); }

std::optional<std::uint64_t> available_host_memory() {
  const HostMemory host = host_memory();
  if (!host.memory || !host.address_space) return host.memory ? host.memory : host.address_space;
  return std::min(*host.memory, *host.address_space);
}

}  // namespace pronk::inline v0
