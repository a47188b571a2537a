// Runs the tests of this program: all of them, or those that are named.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "check.h"

namespace check {
namespace {

constexpr int kReported = 20;  // failures of one test; a loop may well produce thousands

std::map<std::string, void (*)(), std::less<>>& tests() {
  static std::map<std::string, void (*)(), std::less<>> all;
  return all;
}

struct Running {
  std::mutex mutex;
  int failures = 0;        // guarded by mutex
  std::uint64_t seed = 0;  // guarded by mutex
  bool seed_used = false;  // guarded by mutex
};

Running& running() {
  static Running state;
  return state;
}

std::uint64_t program_seed() {
  static const std::uint64_t value = [] {
    if (const char* text = std::getenv("PRONK_TEST_SEED")) {
      std::uint64_t given = 0;
      const char* end = text + std::string_view(text).size();
      if (const auto [stop, error] = std::from_chars(text, end, given);
          error != std::errc{} || stop != end || text == end) {
        std::fprintf(stderr, "PRONK_TEST_SEED: got %s, expected an integer in [0, 2^64)\n", text);
        std::exit(2);
      }
      return given;
    }
    std::random_device device;
    return (std::uint64_t{device()} << 32) | device();
  }();
  return value;
}

// Returns whether the test passed.
bool run_test(const std::string& name, void (*run)()) {
  {
    const std::lock_guard lock(running().mutex);
    running().failures = 0;
    running().seed_used = false;
  }
  try {
    run();
  } catch (const TestEnded&) {
  } catch (const std::exception& error) {
    fail({name.c_str(), 0}, std::string("the test threw: ") + error.what());
  } catch (...) {
    fail({name.c_str(), 0}, "the test threw something that is no std::exception");
  }
  const std::lock_guard lock(running().mutex);
  if (running().failures > kReported) {
    std::printf("  and %d more\n", running().failures - kReported);
  }
  if (running().failures > 0 && running().seed_used) {
    std::printf("  seed: repeat with PRONK_TEST_SEED=%llu\n",
                static_cast<unsigned long long>(running().seed));
  }
  std::printf("%s %s\n", running().failures == 0 ? "ok    " : "FAILED", name.c_str());
  std::fflush(stdout);
  return running().failures == 0;
}

int usage(const char* program) {
  std::fprintf(stderr, "usage: %s [--list | --run NAME ...]\n", program);
  return 2;
}

int main(int argc, char** argv) {
  const std::vector<std::string_view> arguments(argv + 1, argv + argc);
  if (arguments.size() == 1 && arguments[0] == "--list") {
    for (const auto& [name, run] : tests()) std::printf("%s\n", name.c_str());
    return 0;
  }
  std::vector<std::string> names;
  if (arguments.empty()) {
    for (const auto& [name, run] : tests()) names.push_back(name);
  } else {
    if (arguments[0] != "--run" || arguments.size() < 2) return usage(argv[0]);
    names.assign(arguments.begin() + 1, arguments.end());
  }
  int failed = 0;
  for (const std::string& name : names) {
    const auto test = tests().find(name);
    if (test == tests().end()) {
      std::fprintf(stderr, "--run: got %s, expected a name that --list prints\n", name.c_str());
      return 2;
    }
    if (!run_test(name, test->second)) ++failed;
  }
  std::printf("%zu tests, %d failed\n", names.size(), failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace

bool add_test(const char* name, void (*run)()) {
  if (!tests().emplace(name, run).second) {
    std::fprintf(stderr, "test %s: defined twice, expected one name for each test\n", name);
    std::exit(2);
  }
  return true;
}

void fail(Place place, const std::string& message) {
  const std::lock_guard lock(running().mutex);
  if (++running().failures > kReported) return;
  std::printf("%s:%d: %s\n", place.file, place.line, message.c_str());
}

std::uint64_t seed() {
  const std::lock_guard lock(running().mutex);
  running().seed = program_seed();
  running().seed_used = true;
  return running().seed;
}

}  // namespace check

int main(int argc, char** argv) { return check::main(argc, argv); }
