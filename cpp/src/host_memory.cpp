#include "host_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

namespace pronk::inline v0 {
namespace {

using cpu_count::ReadFile;

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
/// up.
std::optional<std::uint64_t> left_in(const std::string& directory, const ReadFile& read, bool v2) {
  const auto limit =
      number(read(directory + (v2 ? "/memory.max" : "/memory.limit_in_bytes")).value_or(""));
  const auto used =
      number(read(directory + (v2 ? "/memory.current" : "/memory.usage_in_bytes")).value_or(""));
  if (!limit || !used) return std::nullopt;
  const std::string statistics = read(directory + "/memory.stat").value_or("");
  const std::uint64_t cached =
      field(statistics, v2 ? "inactive_file " : "total_inactive_file ").value_or(0);
  const std::uint64_t held = *used - std::min(*used, cached);
  return *limit - std::min(*limit, held);
}

std::optional<std::uint64_t> left_in_groups(const ReadFile& read) {
  std::optional<std::uint64_t> result;
  std::istringstream lines(read("/proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t path_at = line.find(":/");
    if (path_at == std::string::npos) continue;
    const bool v2 = line.starts_with("0::");
    if (!v2 && line.find(":memory:") == std::string::npos) continue;
    const std::string mount = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    // The limit of a group is also that of every group below it.
    for (std::string path = line.substr(path_at + 1);; path.resize(path.rfind('/'))) {
      const bool root = path.size() <= 1;
      if (const auto left = left_in(root ? mount : mount + path, read, v2)) {
        result = std::min(result.value_or(*left), *left);
      }
      if (root) break;
    }
  }
  return result;
}

/// What `ulimit -v` leaves, less what ggml takes besides the cache: it aborts where that is not to
/// be had.
std::optional<std::uint64_t> left_in_address_space(const ReadFile& read) {
  constexpr std::uint64_t kBesides = std::uint64_t{512} << 20;
  const auto limit = field(read("/proc/self/limits").value_or(""), "Max address space");
  const auto used = field(read("/proc/self/status").value_or(""), "VmSize:");
  if (!limit || !used) return std::nullopt;
  return *limit - std::min(*limit, *used * 1024 + kBesides);
}

}  // namespace

std::optional<std::uint64_t> available_host_memory(const ReadFile& read) {
  std::optional<std::uint64_t> result;
  if (const auto kib = field(read("/proc/meminfo").value_or(""), "MemAvailable:"))
    result = *kib * 1024;
  if (const auto left = left_in_groups(read)) result = std::min(result.value_or(*left), *left);
  if (const auto left = left_in_address_space(read)) {
    result = std::min(result.value_or(*left), *left);
  }
  return result;
}

std::optional<std::uint64_t> available_host_memory() {
  return available_host_memory([](const std::string& path) -> std::optional<std::string> {
    std::ifstream file(path);
    if (!file) return std::nullopt;
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  });
}

}  // namespace pronk::inline v0
