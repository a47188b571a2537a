#include "llama_threads.h"

#include <latch>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "pronk/error.h"
#include "signals_blocked.h"

namespace pronk::inline v0 {
namespace {

// Between two graphs of a step the workers spin for a moment, 1/50 of ggml's default, then sleep:
// an idle pool costs nothing, and a running one no wake-up per graph.
constexpr std::uint32_t kPoll = 1;

/// ggml aborts the process when it cannot start a thread, so that the system is asked first.
void check_can_start(std::int32_t n) {
  std::latch release(1);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(n));
  std::string refused;
  try {
    while (threads.size() < static_cast<std::size_t>(n))
      threads.emplace_back([&] { release.wait(); });
  } catch (const std::system_error& error) {
    refused = error.what();
  }
  const std::size_t started = threads.size();
  release.count_down();
  for (std::thread& thread : threads) thread.join();
  if (!refused.empty()) {
    throw BackendError("n_threads: got " + std::to_string(n + 1) +
                       ", the system starts no more than " + std::to_string(started + 1) + " (" +
                       refused + "), lower it or raise the limit");
  }
}

}  // namespace

LlamaThreads::LlamaThreads(std::int32_t n_threads) : n_threads_(n_threads) {
  if (n_threads < 1 || n_threads > GGML_MAX_N_THREADS) {
    throw InvalidArgumentError("n_threads: got " + std::to_string(n_threads) + ", expected 1 to " +
                               std::to_string(GGML_MAX_N_THREADS) + ", use about one per CPU core");
  }
  const SignalsBlocked blocked;
  check_can_start(n_threads - 1);
  ggml_threadpool_params params = ggml_threadpool_params_default(n_threads);
  params.poll = kPoll;
  pool_ = ggml_threadpool_new(&params);
  if (pool_ == nullptr) {
    throw BackendError("n_threads: got " + std::to_string(n_threads) +
                       ", llama.cpp made no thread pool of it, lower it");
  }
}

LlamaThreads::~LlamaThreads() {
  // In a forked child there are no workers to be joined.
  if (!process_.forked()) ggml_threadpool_free(pool_);
}

}  // namespace pronk::inline v0
