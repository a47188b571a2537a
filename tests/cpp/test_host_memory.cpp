// What is free of main memory, by the files of /proc and /sys.
#include <map>
#include <optional>
#include <string>

#include "check.h"
#include "host_memory.h"

namespace {

using Bytes = std::optional<std::uint64_t>;

pronk::HostMemory host(std::map<std::string, std::string> content, std::uint64_t mapped = 0) {
  return pronk::host_memory(mapped, [&](const std::string& path) -> std::optional<std::string> {
    const auto found = content.find(path);
    return found == content.end() ? std::nullopt : std::optional(found->second);
  });
}

Bytes available(std::map<std::string, std::string> content, std::uint64_t mapped = 0) {
  return host(std::move(content), mapped).memory;
}

const std::string kMeminfo =
    "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\n";
const std::string kGroup = "/sys/fs/cgroup/a";

}  // namespace

TEST(host_memory_is_what_the_kernel_calls_available) {
  CHECK_EQ(available({}), Bytes());
  CHECK_EQ(available({{"/proc/meminfo", kMeminfo}}), Bytes(600 * 1024));
  CHECK_EQ(host({{"/proc/meminfo", kMeminfo}}).memory_limit, std::string("of main memory"));
  CHECK_EQ(available({{"/proc/meminfo", "MemTotal: 7 kB\nMemAvailable: no number\n"}}), Bytes());
}

TEST(host_memory_leaves_mapped_files_where_they_are) {
  CHECK_EQ(available({{"/proc/meminfo", kMeminfo}}, 100 * 1024), Bytes(500 * 1024));
  CHECK_EQ(available({{"/proc/meminfo", kMeminfo}}, 700 * 1024), Bytes(0));
  std::map<std::string, std::string> files = {{"/proc/self/cgroup", "0::/a\n"},
                                              {kGroup + "/memory.max", "1000\n"},
                                              {kGroup + "/memory.current", "500\n"}};
  // Read, and counted among the idle pages, or not read yet.
  files[kGroup + "/memory.stat"] = "inactive_file 200\nactive_file 0\n";
  CHECK_EQ(available(files, 150), Bytes(1000 - (500 - 200) - 150));
  // Counted as held already.
  files[kGroup + "/memory.stat"] = "inactive_file 0\nactive_file 200\n";
  CHECK_EQ(available(files, 150), Bytes(1000 - 500));
  CHECK_EQ(available(files, 250), Bytes(1000 - 500 - 50));
}

TEST(host_memory_is_limited_by_the_group) {
  // 500000 - (400000 - 300000 of file cache)
  const auto limited =
      host({{"/proc/meminfo", kMeminfo},
            {"/proc/self/cgroup", "0::/a/b\n"},
            {"/sys/fs/cgroup/a/memory.max", "500000\n"},
            {"/sys/fs/cgroup/a/memory.current", "400000\n"},
            {"/sys/fs/cgroup/a/memory.stat", "anon 100000\ninactive_file 300000\n"}});
  CHECK_EQ(limited.memory, Bytes(400000));
  CHECK_EQ(limited.memory_limit, std::string("of the control group's memory limit"));
  CHECK_EQ(available({{"/proc/meminfo", kMeminfo},
                      {"/proc/self/cgroup", "0::/\n"},
                      {"/sys/fs/cgroup/memory.max", "max\n"},
                      {"/sys/fs/cgroup/memory.current", "400000\n"}}),
           Bytes(600 * 1024));
  // The tightest of all that apply.
  CHECK_EQ(available({{"/proc/self/cgroup", "0::/a/b\n"},
                      {"/sys/fs/cgroup/a/b/memory.max", "900\n"},
                      {"/sys/fs/cgroup/a/b/memory.current", "100\n"},
                      {"/sys/fs/cgroup/a/memory.max", "1000\n"},
                      {"/sys/fs/cgroup/a/memory.high", "700\n"},
                      {"/sys/fs/cgroup/a/memory.current", "300\n"}}),
           Bytes(400));
}

TEST(host_memory_knows_both_versions_of_control_groups) {
  for (const std::string line : {"9:memory:/docker/4f\n", "9:cpu,memory:/docker/4f\n"}) {
    CHECK_EQ(available({{"/proc/self/cgroup", "3:cpuset:/x\n" + line},
                        {"/sys/fs/cgroup/memory/docker/4f/memory.limit_in_bytes", "1000\n"},
                        {"/sys/fs/cgroup/memory/docker/4f/memory.usage_in_bytes", "2000\n"}}),
             Bytes(0));
    // Inside of a container its own group is the root.
    CHECK_EQ(available({{"/proc/self/cgroup", line},
                        {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "1000\n"},
                        {"/sys/fs/cgroup/memory/memory.usage_in_bytes", "400\n"},
                        {"/sys/fs/cgroup/memory/memory.stat",
                         "inactive_file 1\ntotal_inactive_file 100\n"}}),
             Bytes(700));
  }
  CHECK_EQ(available({{"/proc/self/cgroup", "9:memorial:/a\n"},
                      {"/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000\n"},
                      {"/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "1\n"}}),
           Bytes());
}

TEST(host_memory_tells_address_space_apart) {
  std::map<std::string, std::string> files = {
      {"/proc/self/status", "Name:\tx\nVmPeak:\t 90 kB\nVmSize:\t  30 kB\n"},
      {"/proc/self/limits",
       "Max cpu time              unlimited            unlimited            seconds\n"
       "Max address space         102400               unlimited            bytes\n"}};
  CHECK_EQ(host(files).address_space, Bytes(102400 - 30 * 1024));
  CHECK_EQ(host(files).memory, Bytes());
  files["/proc/self/limits"] =
      "Max address space         unlimited            unlimited     bytes\n";
  CHECK_EQ(host(files).address_space, Bytes());
}
