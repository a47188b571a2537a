// What contexts take by llama.cpp's accounting, foretold and afterwards.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "check.h"
#include "engine_impl.h"
#include "gguf_builder.h"
#include "llama.h"
#include "llama_memory.h"
#include "pronk/engine.h"
#include "pronk/error.h"
#include "pronk/scheduler.h"

namespace {

using pronk::BackendOptions;
using pronk::DeviceMemory;
using pronk::InferenceEngine;

BackendOptions context(std::int32_t n_seq, std::int32_t n_ctx, bool unified) {
  BackendOptions options;
  options.n_seq = n_seq;
  options.n_ctx_seq = n_ctx;
  options.n_ctx_total = unified ? n_ctx * n_seq : n_ctx;
  options.kv_unified = unified;
  options.n_batch = 64;
  options.n_outputs = n_seq;
  return options;
}

std::shared_ptr<llama_model> without_weights(const std::string& path) {
  llama_model_params params = llama_model_default_params();
  params.no_alloc = true;
  params.load_mode = LLAMA_LOAD_MODE_NONE;
  return {llama_model_load_from_file(path.c_str(), params), &llama_model_free};
}

void check_close(std::uint64_t got, std::uint64_t expected) {
  const auto a = static_cast<double>(got), b = static_cast<double>(expected);
  if (std::abs(a - b) > 0.1 * b + 1024) CHECK_EQ(got, expected);
}

}  // namespace

TEST(llama_memory_is_what_contexts_take) {
  const gguf::TempFile file(gguf::tiny_model().bytes());
  const auto engine = InferenceEngine::load(file.path());
  for (const bool unified : {true, false}) {
    const BackendOptions options = context(3, 600, unified);
    const auto before = engine->impl().context_memory(options).devices;
    const auto after = engine->impl().make_backend(options, nullptr)->memory();
    REQUIRE(before.size() == 1 && after.size() == 1);
    CHECK_EQ(before[0].device, after[0].device);
    CHECK_EQ(before[0].kv, after[0].kv);
    CHECK_EQ(before[0].other, after[0].other);
    check_close(before[0].compute, after[0].compute);
    check_close(before[0].weights, after[0].weights);
    // One layer, one head of 32: 64 halves per cell.
    CHECK_EQ(before[0].kv, (unified ? 2048u : 3 * 768u) * 64 * 2);
  }
}

// Contexts that are too large to be tried out follow from smaller ones.
TEST(llama_memory_of_large_contexts_follows_from_small_ones) {
  const gguf::TempFile file(gguf::tiny_model().bytes());
  const auto engine = InferenceEngine::load(file.path());
  struct Case {
    std::uint64_t budget;
    std::int32_t n_seq, n_ctx;
  };
  for (const bool unified : {true, false}) {
    // By cells, and by sequences.
    for (const auto& [budget, n_seq, n_ctx] : {Case{1'000'000, 1, 65536},
                                               {1'000'000, 8, 16384},
                                               {1'000'000, 60, 2048},
                                               {150'000, 250, 256}}) {
      pronk::LlamaMemory exact([&] { return without_weights(file.path()); }, 12, true);
      pronk::LlamaMemory cautious([&] { return without_weights(file.path()); }, 12, true);
      exact.set_budget(std::uint64_t{1} << 40);
      cautious.set_budget(budget);
      BackendOptions options = context(n_seq, n_ctx, unified);
      options.n_batch = 256;
      const auto a = exact.of_context(engine->info(), options).devices;
      const auto b = cautious.of_context(engine->info(), options).devices;
      REQUIRE(a.size() == 1 && b.size() == 1);
      CHECK_EQ(a[0].kv, b[0].kv);
      check_close(b[0].compute, a[0].compute);
      check_close(b[0].other, a[0].other);
      CHECK_EQ(a[0].weights, b[0].weights);
    }
  }
}

TEST(llama_memory_knows_the_cache_of_a_model_that_is_gone) {
  const auto engine = [] {
    const gguf::TempFile file(gguf::tiny_model().bytes());
    return InferenceEngine::load(file.path());
  }();
  const auto memory = engine->impl().context_memory(context(3, 600, false)).devices;
  REQUIRE(memory.size() == 1);
  CHECK_EQ(memory[0].kv, 3u * 768 * 64 * 2);
  CHECK_EQ(memory[0].compute, 0u);
}

TEST(llama_memory_is_not_that_of_another_file) {
  const gguf::TempFile file(gguf::tiny_model().bytes());
  const auto engine = InferenceEngine::load(file.path(), {.use_mmap = false});
  gguf::TinyModel larger;
  larger.n_layers = 3;
  file.write(gguf::tiny_model(larger).bytes());
  const auto memory = engine->impl().context_memory(context(3, 600, false)).devices;
  REQUIRE(memory.size() == 1);
  CHECK_EQ(memory[0].kv, 3u * 768 * 64 * 2);  // of one layer
}

TEST(llama_memory_refuses_what_can_be_no_context) {
  const gguf::TempFile file(gguf::tiny_model().bytes());
  const auto engine = InferenceEngine::load(file.path());
  BackendOptions options = context(1, 256, true);
  options.type_k = "f17";
  CHECK_THROWS(pronk::InvalidArgumentError, engine->impl().context_memory(options));
  const auto vocabulary = InferenceEngine::load(file.path(), {.vocab_only = true});
  CHECK_THROWS(pronk::InvalidArgumentError,
               vocabulary->impl().context_memory(context(1, 256, true)));
  CHECK_THROWS(pronk::InvalidArgumentError, vocabulary->estimate_memory(1, {}));
}

TEST(llama_memory_refuses_a_pool_beyond_it) {
  const gguf::TempFile file(gguf::tiny_model().bytes());
  const auto engine = InferenceEngine::load(file.path());
  if (engine->impl().free_memory().devices.empty()) return;  // a system that does not say
  const std::uint64_t free = engine->impl().free_memory().devices.back().bytes;
  pronk::PoolOptions options;
  options.n_ctx = 1 << 26;  // times 256 bytes
  options.type_k = options.type_v = "f32";
  options.n_cached = 0;
  const auto n = static_cast<std::int32_t>(free / (std::uint64_t{1} << 34) + 2);
  if (n > 16) return;
  pronk::SchedulerOptions permits;
  permits.max_concurrent = n;
  pronk::InferenceScheduler scheduler(permits);
  const auto estimate = engine->estimate_memory(n, options);
  CHECK(!estimate.fits);
  CHECK_EQ(estimate.devices.at(0).kv, static_cast<std::uint64_t>(n) << 34);
  CHECK_THROWS(pronk::InsufficientMemoryError, scheduler.init_pool(engine, options));
  options.n_ctx = 256;
  scheduler.init_pool(engine, options);
  CHECK_EQ(scheduler.memory().at(0).kv, engine->estimate_memory(n, options).devices.at(0).kv);
}
