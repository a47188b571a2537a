#include "cpu_count.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace pronk::inline v0 {
namespace cpu_count {
namespace {

constexpr std::size_t kCpusBeforeCoresCount = 8;

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

std::optional<std::int32_t> ratio(std::optional<std::int64_t> quota,
                                  std::optional<std::int64_t> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  const std::int64_t rounded_up = (*quota - 1) / *period + 1;
  return static_cast<std::int32_t>(std::min<std::int64_t>(rounded_up, 1'000'000));
}

std::optional<std::int32_t> quota_v2(const std::string& directory, const ReadFile& read) {
  const auto text = read(directory + "/cpu.max");  // "max 100000" or "150000 100000"
  if (!text) return std::nullopt;
  std::istringstream words(*text);
  std::string quota, period;
  words >> quota >> period;
  return ratio(number(quota), number(period));
}

std::optional<std::int32_t> quota_v1(const std::string& directory, const ReadFile& read) {
  const auto quota = read(directory + "/cpu.cfs_quota_us");  // -1 is none
  const auto period = read(directory + "/cpu.cfs_period_us");
  if (!quota || !period) return std::nullopt;
  return ratio(number(*quota), number(*period));
}

std::optional<std::int32_t> tighter(std::optional<std::int32_t> a, std::optional<std::int32_t> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

/// The limit of a group is also that of every group below it. In a container the path may name a
/// group outside of what is mounted, then only the root says anything.
template <typename QuotaOf>
std::optional<std::int32_t> tightest_upwards(const std::string& mount, std::string path,
                                             const ReadFile& read, QuotaOf quota_of) {
  std::optional<std::int32_t> result = quota_of(mount, read);
  while (path.size() > 1) {
    result = tighter(result, quota_of(mount + path, read));
    path.resize(path.rfind('/'));
  }
  return result;
}

}  // namespace

std::optional<std::int32_t> quota(const ReadFile& read) {
  std::optional<std::int32_t> result;
  // Lines like "0::/user.slice" (v2) and "4:cpu,cpuacct:/docker/4f" (v1).
  std::istringstream lines(read("/proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos || line.compare(second + 1, 1, "/") != 0) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") {
      result = tighter(result, tightest_upwards("/sys/fs/cgroup", path, read, quota_v2));
    } else if (controllers.find(",cpu,") != std::string::npos) {
      for (const char* mount : {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"}) {
        result = tighter(result, tightest_upwards(mount, path, read, quota_v1));
      }
    }
  }
  return result;
}

std::int32_t physical_cores(const std::vector<std::int32_t>& cpus, const ReadFile& read) {
  std::set<std::string> cores;
  for (const std::int32_t cpu : cpus) {
    const std::string topology = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    auto siblings = read(topology + "core_cpus_list");
    if (!siblings) siblings = read(topology + "thread_siblings_list");  // before Linux 5.3
    cores.insert(siblings.value_or(std::to_string(cpu)));
  }
  return static_cast<std::int32_t>(cores.size());
}

std::int32_t choose(const std::vector<std::int32_t>& cpus, const ReadFile& read) {
  auto count = static_cast<std::int32_t>(std::max<std::size_t>(cpus.size(), 1));
  if (cpus.size() > kCpusBeforeCoresCount) count = physical_cores(cpus, read);
  if (const auto limit = quota(read)) count = std::min(count, *limit);
  return std::max(count, 1);
}

}  // namespace cpu_count

namespace {

#if defined(__linux__)

/// CPUs that this process may run on; empty when the kernel does not say.
std::vector<std::int32_t> allowed_cpus() {
  // The kernel refuses a set smaller than its own, whose size it does not tell.
  for (int size = 1024; size <= 1 << 20; size *= 2) {
    cpu_set_t* set = CPU_ALLOC(size);
    if (set == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(size);
    std::vector<std::int32_t> cpus;
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    for (std::int32_t cpu = 0; known && cpu < size; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set)) cpus.push_back(cpu);
    }
    CPU_FREE(set);
    if (known) return cpus;
  }
  return {};
}

#endif

}  // namespace

std::int32_t default_thread_count() {
#if defined(__linux__)
  if (const auto cpus = allowed_cpus(); !cpus.empty()) return cpu_count::choose(cpus, read_file);
#elif defined(__APPLE__)
  std::int32_t count = 0;
  for (const char* name : {"hw.perflevel0.physicalcpu", "hw.physicalcpu"}) {
    std::size_t size = sizeof(count);
    if (sysctlbyname(name, &count, &size, nullptr, 0) == 0 && count > 0) return count;
  }
#endif
  return static_cast<std::int32_t>(std::max(std::thread::hardware_concurrency(), 1u));
}

}  // namespace pronk::inline v0
