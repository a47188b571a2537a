#include <map>
#include <optional>
#include <string>

#include "check.h"
#include "host_memory.h"

namespace {

std::optional<std::uint64_t> available(std::map<std::string, std::string> content) {
  return pronk::available_host_memory([&](const std::string& path) -> std::optional<std::string> {
    const auto found = content.find(path);
    return found == content.end() ? std::nullopt : std::optional(found->second);
  });
}

const std::string kMeminfo =
    "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\n";

}  // namespace

TEST(host_memory_is_what_the_kernel_calls_available) {
  CHECK_EQ(available({}), std::nullopt);
  CHECK_EQ(available({{"/proc/meminfo", kMeminfo}}), std::optional<std::uint64_t>(600 * 1024));
}

TEST(host_memory_is_limited_by_the_group) {
  // 500000 - (400000 - 300000 of file cache)
  CHECK_EQ(available({{"/proc/meminfo", kMeminfo},
                      {"/proc/self/cgroup", "0::/a/b\n"},
                      {"/sys/fs/cgroup/a/memory.max", "500000\n"},
                      {"/sys/fs/cgroup/a/memory.current", "400000\n"},
                      {"/sys/fs/cgroup/a/memory.stat", "anon 100000\ninactive_file 300000\n"}}),
           std::optional<std::uint64_t>(400000));
  CHECK_EQ(available({{"/proc/meminfo", kMeminfo},
                      {"/proc/self/cgroup", "0::/\n"},
                      {"/sys/fs/cgroup/memory.max", "max\n"},
                      {"/sys/fs/cgroup/memory.current", "400000\n"}}),
           std::optional<std::uint64_t>(600 * 1024));
  CHECK_EQ(available({{"/proc/self/cgroup", "9:memory:/docker/4f\n"},
                      {"/sys/fs/cgroup/memory/docker/4f/memory.limit_in_bytes", "1000\n"},
                      {"/sys/fs/cgroup/memory/docker/4f/memory.usage_in_bytes", "2000\n"}}),
           std::optional<std::uint64_t>(0));
}
