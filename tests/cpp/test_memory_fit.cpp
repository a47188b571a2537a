// How a pool is made to fit, with a model whose memory is a formula.
#include <optional>
#include <string>

#include "check.h"
#include "memory_fit.h"
#include "pronk/error.h"

namespace {

using pronk::BackendOptions;
using pronk::ContextMemory;
using pronk::FreeMemories;
using pronk::InsufficientMemoryError;
using pronk::kAuto;
using pronk::MemoryFit;
using pronk::ModelInfo;
using pronk::PoolFit;
using pronk::PoolOptions;

constexpr std::uint64_t kMB = 1'000'000;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kCell = 10'000;  // bytes

ModelInfo model(std::int32_t n_ctx_train = 8192) {
  ModelInfo info;
  info.memory_kind = pronk::MemoryKind::kPlain;
  info.n_ctx_train = n_ctx_train;
  info.n_head = 9;
  info.n_vocab = 1000;
  return info;
}

std::uint64_t cells(const BackendOptions& options) {
  const auto pad = [](std::int64_t n) { return static_cast<std::uint64_t>((n + 255) / 256 * 256); };
  return options.kv_unified ? pad(options.n_ctx_total)
                            : pad(options.n_ctx_seq) * static_cast<std::uint64_t>(options.n_seq);
}

ContextMemory memory_of(const BackendOptions& options, const std::string& device = "CPU") {
  ContextMemory memory;
  auto& entry = pronk::entry_of(memory.devices, device);
  entry.weights = 77 * kMB;
  entry.kv = cells(options) * kCell;
  entry.compute = 5 * kMB;
  return memory;
}

FreeMemories free_of(std::uint64_t bytes, bool gpu = false) {
  FreeMemories free;
  free.devices.push_back({gpu ? "CUDA0" : "CPU", gpu, bytes, "of main memory"});
  return free;
}

MemoryFit fit_to(std::uint64_t bytes, const PoolOptions& options, std::int32_t n_cpus = 2,
                 const ModelInfo& info = model()) {
  return {info,           false,
          n_cpus,         options,
          free_of(bytes), [](const BackendOptions& context) { return memory_of(context); }};
}

PoolOptions pool(std::optional<std::int32_t> n_ctx, std::optional<std::int32_t> n_cached = 0) {
  PoolOptions options;
  options.kv = "split";
  options.n_ctx = n_ctx;
  options.n_cached = n_cached;
  return options;
}

/// Bytes of a pool of so many cells, with the reserve that is kept for what is not counted.
std::uint64_t room(std::uint64_t n_cells) { return n_cells * kCell + 5 * kMB + 16 * kMiB; }

std::optional<InsufficientMemoryError> refusal(MemoryFit fit, std::int32_t n) {
  try {
    fit.fit(n);
  } catch (const InsufficientMemoryError& error) {
    return error;
  }
  return std::nullopt;
}

}  // namespace

TEST(memory_fit_adds_up) {
  PoolOptions options = pool(1024);
  PoolFit fit = fit_to(1000 * kMB, options).estimate(3);
  REQUIRE(fit.memory.devices.size() == 1);
  const pronk::DeviceMemory& cpu = fit.memory.devices[0];
  CHECK_EQ(cpu.kv, 3 * 1024 * kCell);
  CHECK_EQ(cpu.compute, 5 * kMB);
  CHECK_EQ(cpu.weights, 77 * kMB);
  CHECK_EQ(cpu.pool(), 3 * 1024 * kCell + 5 * kMB);
  CHECK_EQ(cpu.total(), cpu.pool() + 77 * kMB);
  CHECK_EQ(cpu.free, 1000 * kMB);
  CHECK(fit.memory.fits);

  options.layout = "isolated";
  fit = fit_to(1000 * kMB, options).estimate(3);
  CHECK_EQ(fit.memory.devices[0].kv, 3 * 1024 * kCell);
  CHECK_EQ(fit.memory.devices[0].compute, 3 * 5 * kMB);
  CHECK_EQ(fit.memory.devices[0].weights, 77 * kMB);  // there once
}

TEST(memory_fit_takes_the_last_byte_and_no_more) {
  const PoolOptions options = pool(1024);
  CHECK(fit_to(room(3 * 1024), options).estimate(3).memory.fits);
  CHECK(!refusal(fit_to(room(3 * 1024), options), 3));
  CHECK(!fit_to(room(3 * 1024) - 1, options).estimate(3).memory.fits);
  CHECK(refusal(fit_to(room(3 * 1024) - 1, options), 3).has_value());
}

TEST(memory_fit_says_what_would_fit) {
  const auto error = refusal(fit_to(room(5 * 512), pool(1024)), 4);
  REQUIRE(error.has_value());
  CHECK_EQ(error->shortage().need, 4 * 1024 * kCell + 5 * kMB);
  CHECK_EQ(error->shortage().have, 5 * 512 * kCell + 5 * kMB);
  CHECK_EQ(error->shortage().n_ctx, 512);  // 4 x 640 would fit, but 640 are rounded up to 768
  CHECK_EQ(error->shortage().max_concurrent, 2);
  for (const char* part : {"n_ctx 1024", "max_concurrent 4", "46 MB", "30 MB", "of CPU",
                           "lower n_ctx to 512 or max_concurrent to 2"}) {
    const std::string message = error->what();
    if (message.find(part) == std::string::npos) CHECK_EQ(message, std::string(part));
  }
  // What it names does fit, and the next larger one does not.
  CHECK(fit_to(room(5 * 512), pool(512)).estimate(4).memory.fits);
  CHECK(!fit_to(room(5 * 512), pool(513)).estimate(4).memory.fits);
  CHECK(fit_to(room(5 * 512), pool(1024)).estimate(2).memory.fits);
  CHECK(!fit_to(room(5 * 512), pool(1024)).estimate(3).memory.fits);
}

TEST(memory_fit_names_nothing_where_nothing_fits) {
  const auto error = refusal(fit_to(1 * kMB, pool(1024)), 4);
  REQUIRE(error.has_value());
  CHECK_EQ(error->shortage().n_ctx, 0);
  CHECK_EQ(error->shortage().max_concurrent, 0);
  CHECK(std::string(error->what()).find("lower n_ctx") == std::string::npos);
  CHECK(std::string(error->what()).find("smaller model") != std::string::npos);
}

TEST(memory_fit_lets_idle_sequences_give_way) {
  // Eight by default: 2 lanes, 6 idle ones.
  PoolFit fit = fit_to(room(8 * 4096), pool(4096, std::nullopt)).fit(2);
  CHECK_EQ(fit.plan.n_cached, 6);
  fit = fit_to(room(7 * 4096), pool(4096, std::nullopt)).fit(2);
  CHECK_EQ(fit.plan.n_cached, 3);
  CHECK_EQ(fit.plan.context.n_seq, 5);
  CHECK(fit.plan.n_cached_reason.find("memory is short") != std::string::npos);
  CHECK(fit.memory.fits);
  fit = fit_to(room(2 * 4096), pool(4096, std::nullopt)).fit(2);
  CHECK_EQ(fit.plan.n_cached, 0);
  CHECK(refusal(fit_to(room(2 * 4096) - 1, pool(4096, std::nullopt)), 2).has_value());
  // Asked for, they are not taken away.
  CHECK(refusal(fit_to(room(7 * 4096), pool(4096, 6)), 2).has_value());
  // The estimate is of what was asked for.
  CHECK_EQ(fit_to(room(7 * 4096), pool(4096, std::nullopt)).estimate(2).memory.n_cached, 6);
}

TEST(memory_fit_chooses_a_context) {
  // A tenth of what is free stays so, and 64 MiB at least.
  const PoolFit fit = fit_to(300 * kMB, pool(kAuto)).fit(4);
  CHECK_EQ(fit.plan.n_ctx,
           static_cast<std::int32_t>((300 * kMB - 64 * kMiB - 5 * kMB) / kCell / 4 / 256 * 256));
  CHECK(fit.plan.n_ctx_reason.find("auto: the most that fits") == 0);
  CHECK_EQ(fit_to(4000 * kMB, pool(kAuto)).fit(4).plan.n_ctx, 8192);
  CHECK_EQ(fit_to(4000 * kMB, pool(kAuto), 2, model(1000)).fit(4).plan.n_ctx, 1000);
  CHECK_EQ(fit_to(4000 * kMB, pool(kAuto), 2, model(0)).fit(4).plan.n_ctx, 4096);
  CHECK_EQ(fit_to(4000 * kMB, pool(kAuto)).fit(4).plan.n_ctx_reason,
           std::string("auto: all that the model was trained on"));
  CHECK_EQ(fit_to(4000 * kMB, pool(300)).fit(4).plan.n_ctx_reason, std::string("asked for"));
}

TEST(memory_fit_chooses_permits) {
  const std::uint64_t each = 4096 * kCell;
  const auto most = [&](std::uint64_t bytes, std::int32_t n_cpus) {
    return fit_to(bytes, pool(4096), n_cpus).fit(kAuto).memory.max_concurrent;
  };
  CHECK_EQ(most(4000 * kMB, 2), 4);    // at least
  CHECK_EQ(most(4000 * kMB, 3), 6);    // two per thread
  CHECK_EQ(most(4000 * kMB, 64), 32);  // at most
  const std::uint64_t bytes = 600 * kMB;
  CHECK_EQ(static_cast<std::uint64_t>(most(bytes, 16)), (bytes - 64 * kMiB - 5 * kMB) / each);
  const PoolFit fit = fit_to(bytes, pool(4096), 16).fit(kAuto);
  CHECK_EQ(fit.memory.max_concurrent_reason,
           std::string("auto: as many as fit with n_ctx 4096 each"));
  PoolOptions isolated = pool(256);
  isolated.layout = "isolated";
  CHECK_EQ(fit_to(4000 * kMB, isolated, 3).fit(kAuto).memory.max_concurrent, 3);
}

TEST(memory_fit_chooses_both) {
  // First permits with the usual context each, then as much context as is left.
  PoolFit fit = fit_to(300 * kMB, pool(kAuto)).fit(kAuto);
  CHECK_EQ(fit.memory.max_concurrent, 4);
  CHECK_EQ(fit.plan.n_ctx, 5632);
  fit = fit_to(200 * kMB, pool(kAuto)).fit(kAuto);
  CHECK_EQ(fit.memory.max_concurrent, 3);
  CHECK_EQ(fit.plan.n_ctx, 4096);
  // Less than the usual context for a single one.
  fit = fit_to(90 * kMB, pool(kAuto)).fit(kAuto);
  CHECK_EQ(fit.memory.max_concurrent, 1);
  CHECK(fit.plan.n_ctx < 4096 && fit.plan.n_ctx >= 256);
  CHECK(refusal(fit_to(20 * kMB, pool(kAuto)), kAuto).has_value());
}

TEST(memory_fit_minds_each_device) {
  FreeMemories free = free_of(4000 * kMB, true);
  free.devices.push_back({"CPU", false, 30 * kMB, "of the control group's memory limit"});
  MemoryFit fit(model(), true, 2, pool(1024), free, [](const BackendOptions& context) {
    ContextMemory memory = memory_of(context, "CUDA0");
    pronk::entry_of(memory.devices, "CPU").compute = 20 * kMB;
    return memory;
  });
  const auto error = refusal(std::move(fit), 2);
  REQUIRE(error.has_value());
  CHECK_EQ(error->shortage().need, 20 * kMB);
  CHECK(std::string(error->what()).find("of CPU") != std::string::npos);
  CHECK(std::string(error->what()).find("control group") != std::string::npos);
}

TEST(memory_fit_minds_address_space) {
  const auto with = [](std::uint64_t left) {
    FreeMemories free = free_of(4000 * kMB);
    free.address_space = left;
    return MemoryFit(model(), false, 2, pool(1024), free, [](const BackendOptions& context) {
      ContextMemory memory = memory_of(context);
      memory.address_space = 50 * kMB;
      return memory;
    });
  };
  const std::uint64_t need = 2 * 1024 * kCell + 5 * kMB + 50 * kMB + (192 + 2 * 16) * kMiB;
  CHECK(!refusal(with(need), 2));
  const auto error = refusal(with(need - 1), 2);
  REQUIRE(error.has_value());
  CHECK(std::string(error->what()).find("ulimit -v") != std::string::npos);
  const auto hopeless = refusal(with(1 * kMB), 2);
  REQUIRE(hopeless.has_value());
  CHECK(std::string(hopeless->what()).find("raise that limit") != std::string::npos);
}

TEST(memory_fit_does_not_refuse_what_it_does_not_know) {
  MemoryFit blind(model(), false, 2, pool(kAuto), {},
                  [](const BackendOptions& context) { return memory_of(context); });
  PoolFit fit = blind.fit(kAuto);
  CHECK_EQ(fit.memory.max_concurrent, 4);
  CHECK_EQ(fit.plan.n_ctx, 4096);
  CHECK(fit.plan.n_ctx_reason.find("not known") != std::string::npos);
  MemoryFit mute(model(), false, 2, pool(1 << 20), free_of(1),
                 [](const BackendOptions&) { return ContextMemory(); });
  CHECK(mute.fit(8).memory.fits);
}

TEST(memory_fit_asks_for_each_context_once) {
  int calls = 0;
  MemoryFit fit(model(1 << 20), false, 2, pool(kAuto), free_of(400 * kMB),
                [&](const BackendOptions& context) {
                  ++calls;
                  return memory_of(context);
                });
  fit.fit(kAuto);
  CHECK(calls <= 2 + 3 + 13 + 1);  // two searches, the usual context, the one that is made
}
