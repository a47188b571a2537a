#include "process.h"

#include <atomic>
#include <string>

#include "pronk/error.h"

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace pronk::inline v0 {
namespace {

std::atomic<std::uint64_t> generation{0};

#if !defined(_WIN32)
// Counting forks is cheaper than asking for the process id at every call.
const int registered =
    pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });
#endif

}  // namespace

std::uint64_t process_generation() noexcept {
#if !defined(_WIN32)
  (void)registered;
#endif
  return generation.load(std::memory_order_relaxed);
}

void ProcessBound::check(const char* what) const {
  if (forked()) {
    throw ForkedProcessError(
        std::string(what) +
        ": got a call in a forked child, expected the process that created it, "
        "load the model and create the scheduler after the fork");
  }
}

}  // namespace pronk::inline v0
