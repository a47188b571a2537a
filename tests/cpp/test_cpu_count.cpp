#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "cpu_count.h"

#if defined(__linux__)
#include <sched.h>
#endif

namespace {

namespace cpu_count = pronk::cpu_count;

/// A file system made of what is listed.
pronk::ReadFile files(std::map<std::string, std::string> content) {
  return [content = std::move(content)](const std::string& path) -> std::optional<std::string> {
    const auto found = content.find(path);
    return found == content.end() ? std::nullopt : std::optional(found->second);
  };
}

std::vector<std::int32_t> cpus(std::int32_t n) {
  std::vector<std::int32_t> result;
  for (std::int32_t i = 0; i < n; ++i) result.push_back(i);
  return result;
}

/// `n` CPUs, of which i and i + n/2 share a core.
std::map<std::string, std::string> hyperthreads(std::int32_t n) {
  std::map<std::string, std::string> result;
  for (std::int32_t i = 0; i < n; ++i) {
    const std::string siblings =
        std::to_string(i % (n / 2)) + "," + std::to_string(i % (n / 2) + n / 2);
    result["/sys/devices/system/cpu/cpu" + std::to_string(i) + "/topology/core_cpus_list"] =
        siblings + "\n";
  }
  return result;
}

}  // namespace

TEST(cpu_quota_of_cgroup_v2) {
  const std::string self = "/proc/self/cgroup";
  CHECK_EQ(cpu_count::quota(files({})), std::nullopt);
  CHECK_EQ(cpu_count::quota(files({{self, "0::/\n"}, {"/sys/fs/cgroup/cpu.max", "max 100000\n"}})),
           std::nullopt);
  CHECK_EQ(
      cpu_count::quota(files({{self, "0::/\n"}, {"/sys/fs/cgroup/cpu.max", "150000 100000\n"}})),
      std::optional(2));
  CHECK_EQ(
      cpu_count::quota(files({{self, "0::/\n"}, {"/sys/fs/cgroup/cpu.max", "200000 100000\n"}})),
      std::optional(2));
  CHECK_EQ(cpu_count::quota(files({{self, "0::/\n"}, {"/sys/fs/cgroup/cpu.max", "5000 100000\n"}})),
           std::optional(1));
  CHECK_EQ(cpu_count::quota(files({{self, "0::/\n"}, {"/sys/fs/cgroup/cpu.max", "nonsense"}})),
           std::nullopt);
}

TEST(cpu_quota_is_the_tightest_of_the_parents) {
  const auto read = files({{"/proc/self/cgroup", "0::/a/b\n"},
                           {"/sys/fs/cgroup/a/b/cpu.max", "800000 100000"},
                           {"/sys/fs/cgroup/a/cpu.max", "300000 100000"},
                           {"/sys/fs/cgroup/cpu.max", "max 100000"}});
  CHECK_EQ(cpu_count::quota(read), std::optional(3));
}

TEST(cpu_quota_of_cgroup_v1) {
  const std::map<std::string, std::string> limited = {
      {"/proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/docker/4f\n0::/\n"},
      {"/sys/fs/cgroup/cpu,cpuacct/docker/4f/cpu.cfs_quota_us", "250000\n"},
      {"/sys/fs/cgroup/cpu,cpuacct/docker/4f/cpu.cfs_period_us", "100000\n"}};
  CHECK_EQ(cpu_count::quota(files(limited)), std::optional(3));
  auto unlimited = limited;
  unlimited["/sys/fs/cgroup/cpu,cpuacct/docker/4f/cpu.cfs_quota_us"] = "-1\n";
  CHECK_EQ(cpu_count::quota(files(unlimited)), std::nullopt);
}

TEST(cores_count_only_on_large_machines) {
  CHECK_EQ(cpu_count::choose(cpus(8), files(hyperthreads(8))), 8);
  CHECK_EQ(cpu_count::choose(cpus(16), files(hyperthreads(16))), 8);
  CHECK_EQ(cpu_count::choose(cpus(16), files({})), 16);  // no topology known
  CHECK_EQ(cpu_count::choose({}, files({})), 1);
  auto limited = hyperthreads(16);
  limited["/proc/self/cgroup"] = "0::/\n";
  limited["/sys/fs/cgroup/cpu.max"] = "400000 100000";
  CHECK_EQ(cpu_count::choose(cpus(16), files(limited)), 4);
}

#if defined(__linux__)
TEST(default_thread_count_follows_the_affinity) {
  const std::int32_t all = pronk::default_thread_count();
  CHECK(all >= 1);
  // On a thread of its own, whose affinity goes with it.
  std::thread([] {
    cpu_set_t before;
    REQUIRE(sched_getaffinity(0, sizeof(before), &before) == 0);
    cpu_set_t few;
    CPU_ZERO(&few);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&few) < 2; ++cpu) {
      if (!CPU_ISSET(cpu, &before)) continue;
      CPU_SET(cpu, &few);
      if (sched_setaffinity(0, sizeof(few), &few) == 0) {
        CHECK(pronk::default_thread_count() <= CPU_COUNT(&few));
        if (CPU_COUNT(&few) == 1) CHECK_EQ(pronk::default_thread_count(), 1);
      }
    }
  }).join();
}
#endif
