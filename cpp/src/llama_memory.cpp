#include "llama_memory.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "ggml-backend.h"
#include "host_memory.h"
#include "llama_asserts.h"
#include "llama_context_params.h"
#include "llama_log.h"
#include "llama_model_info.h"
#include "pronk/error.h"
#include "src/llama-ext.h"

namespace pronk::inline v0 {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
// llama.cpp's table of cells: 48 bytes for each, and two nodes of a tree once it is used.
constexpr std::uint64_t kCellBytes = 48;
constexpr std::uint64_t kUsedCellBytes = kCellBytes + 96;
// What ggml's scheduler reserves for each node that a graph may have: tensors of 30 inputs, twice.
constexpr std::uint64_t kBytesPerNode = 23 * 1024;

bool has_state(const ModelInfo& info) {
  return info.memory_kind == MemoryKind::kRecurrent || info.memory_kind == MemoryKind::kHybrid;
}

/// Main memory under one name, whatever ggml calls its kinds.
std::string device_of(ggml_backend_buffer_type_t type) {
  const ggml_backend_dev_t device = ggml_backend_buft_get_device(type);
  if (ggml_backend_buft_is_host(type) || device == nullptr ||
      ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU) {
    return "CPU";
  }
  return ggml_backend_dev_name(device);
}

std::uint64_t tables(MemoryKind kind, std::uint64_t n_cells, std::uint64_t per_cell) {
  if (kind == MemoryKind::kRecurrent) return 0;
  // One cache for the layers with a window, one for those without.
  return n_cells * per_cell * (kind == MemoryKind::kSlidingWindow ? 2 : 1);
}

std::uint64_t rows(std::int32_t n_vocab, std::uint64_t n) {
  return static_cast<std::uint64_t>(n_vocab) * n * sizeof(float);
}

/// Weights in ordinary main memory, which can be the pages of a file as they are.
std::uint64_t plain_weights(const llama_context* context) {
  const llama_memory_breakdown all = llama_get_memory_breakdown(context);
  const auto found = all.find(ggml_backend_cpu_buffer_type());
  return found == all.end() ? 0 : found->second.model;
}

/// Most nodes of a graph, after llama.cpp's own rule; it allows those with states more.
std::uint64_t most_nodes(const ModelInfo& info, std::uint64_t n_tensors, std::uint64_t n_batch) {
  return has_state(info) ? std::max(n_batch * 40, n_tensors * 32)
                         : std::max<std::uint64_t>(1024, n_tensors * 8);
}

/// y at `x`, by the line through two points; never below the second.
std::uint64_t on_line(std::uint64_t x, std::uint64_t x1, std::uint64_t y1, std::uint64_t x2,
                      std::uint64_t y2) {
  if (y2 <= y1 || x2 <= x1) return y2;
  const double slope = static_cast<double>(y2 - y1) / static_cast<double>(x2 - x1);
  return y2 + static_cast<std::uint64_t>(slope * static_cast<double>(x - x2));
}

std::vector<DeviceMemory> on_line(std::int64_t x, std::int64_t x1, std::vector<DeviceMemory> a,
                                  std::int64_t x2, std::vector<DeviceMemory> b) {
  const auto at = [&](std::uint64_t y1, std::uint64_t y2) {
    return on_line(static_cast<std::uint64_t>(x), static_cast<std::uint64_t>(x1), y1,
                   static_cast<std::uint64_t>(x2), y2);
  };
  for (DeviceMemory& device : b) {
    const DeviceMemory& before = entry_of(a, device.device);
    device.kv = at(before.kv, device.kv);
    device.compute = at(before.compute, device.compute);
    device.other = at(before.other, device.other);
  }
  return b;
}

std::int32_t rounded_up(std::int32_t n, std::int32_t to) { return (n + to - 1) / to * to; }

/// The largest divisor of n up to `limit`; 0 for none.
std::int32_t divisor(std::int32_t n, std::int32_t limit) {
  while (limit > 0 && n % limit != 0) --limit;
  return limit;
}

/// Of the simplest kind of cache the size is known without llama.cpp: layers x heads x cells.
std::vector<DeviceMemory> cache_alone(const ModelInfo& info, const llama_context_params& params) {
  const std::int32_t layers = std::clamp(info.n_layer - info.n_gpu_layers, 0, info.n_layer);
  if (info.memory_kind != MemoryKind::kPlain || info.n_head_kv < 1 || layers == 0) return {};
  const HeadSizes heads = head_sizes(info);
  const std::uint64_t per_cell = ggml_row_size(params.type_k, heads.key * info.n_head_kv) +
                                 ggml_row_size(params.type_v, heads.value * info.n_head_kv);
  std::vector<DeviceMemory> result;
  entry_of(result, "CPU").kv =
      per_cell * static_cast<std::uint64_t>(layers) * static_cast<std::uint64_t>(params.n_ctx);
  return result;
}

/// The same context with fewer sequences, or with less of a context for each.
BackendOptions shrunk(BackendOptions options, std::int32_t n_seq, std::int32_t n_ctx_seq,
                      std::int32_t n_ctx_total) {
  options.n_seq = n_seq;
  options.n_ctx_seq = n_ctx_seq;
  options.n_ctx_total = n_ctx_total;
  options.n_outputs = std::min(options.n_outputs, n_seq);
  return options;
}

}  // namespace

std::vector<DeviceMemory> memory_of(const llama_context* context, MemoryKind kind) {
  std::vector<DeviceMemory> result;
  for (const auto& [type, bytes] : llama_get_memory_breakdown(context)) {
    DeviceMemory& device = entry_of(result, device_of(type));
    device.weights += bytes.model;
    device.kv += bytes.context;
    device.compute += bytes.compute;
  }
  // The rows of logits, and the list of all tokens that every context has.
  const auto n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(context)));
  entry_of(result, "CPU").other = rows(n_vocab, std::uint64_t{llama_n_seq_max(context)} + 1) +
                                  tables(kind, llama_n_ctx(context), kUsedCellBytes);
  return result;
}

LlamaMemory::LlamaMemory(Load load, std::uint64_t n_tensors, bool mapped)
    : load_(std::move(load)), n_tensors_(n_tensors), is_mapped_(mapped) {}

// Null where there is none.
llama_model* LlamaMemory::copy(const ModelInfo& info) {
  if (copy_ || failed_) return copy_.get();
  const LogCapture log;
  const LogAsDebug quiet;
  std::string reason;
  try {
    copy_ = load_();
    if (!copy_) reason = log.reason();
  } catch (const std::bad_alloc&) {
    throw InsufficientMemoryError(
        "estimate_memory: got too little memory to look at the model, "
        "expected some megabytes, free some");
  } catch (const std::exception& error) {
    reason = error.what();
  }
  if (copy_ && (llama_model_size(copy_.get()) != info.size_bytes ||
                llama_model_n_params(copy_.get()) != info.n_params)) {
    copy_ = nullptr;
    reason = "the file has changed";
  }
  failed_ = !copy_;
  if (failed_) {
    log_warning("memory cannot be estimated: " + info.path + " cannot be read again (" + reason +
                ")");
  }
  return copy_.get();
}

// Returns what a context reserves. ggml aborts where it cannot have that.
std::uint64_t LlamaMemory::check_address_space(const ModelInfo& info,
                                               const BackendOptions& options) const {
  const std::uint64_t reserved =
      most_nodes(info, n_tensors_, static_cast<std::uint64_t>(std::max(options.n_batch, 1))) *
      kBytesPerNode;
  const auto left = host_memory().address_space;
  const std::uint64_t need = reserved + budget_ + 64 * kMiB;
  if (left && *left < need) {
    throw InsufficientMemoryError("init_pool: got " + std::to_string(*left / 1'000'000) +
                                      " MB of address space (ulimit -v), expected at least " +
                                      std::to_string(need / 1'000'000) +
                                      " MB to try a context out, raise the limit",
                                  {need, *left, 0, 0});
  }
  return reserved;
}

ContextMemory LlamaMemory::of_context(const ModelInfo& info, const BackendOptions& options) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t address_space = check_address_space(info, options);
  // Refuses what can be no context before anything else does.
  const llama_context_params params = make_context_params(info, options);
  if (copy(info) == nullptr) return {cache_alone(info, params), address_space};
  return {foretell(info, options), address_space};
}

// A recurrent state is allocated on trial, too.
std::uint64_t LlamaMemory::state_bytes(const ModelInfo& info, const BackendOptions& options) {
  if (!has_state(info)) return 0;
  if (!state_) {
    std::uint64_t kv[2] = {0, 0};
    for (const std::int32_t n : {1, 2}) {
      BackendOptions small = shrunk(options, n, 256, 256);
      small.kv_unified = true;
      for (const DeviceMemory& device : try_out(info, small)) kv[n - 1] += device.kv;
    }
    state_ = kv[1] - std::min(kv[0], kv[1]);
  }
  return *state_;
}

std::vector<DeviceMemory> LlamaMemory::foretell(const ModelInfo& info,
                                                const BackendOptions& options) {
  const std::uint64_t per_seq = state_bytes(info, options) + rows(info.n_vocab, 1);
  const auto most_seq = static_cast<std::int32_t>(std::clamp<std::uint64_t>(
      budget_ / std::max<std::uint64_t>(per_seq, 1), 2, std::max(2, options.n_seq)));
  if (options.n_seq > most_seq) {
    // llama.cpp rounds a batch up to the same number of tokens for each sequence: those of fewer
    // sequences have to come to the same batch.
    const std::int32_t n_batch = rounded_up(options.n_batch, options.n_seq);
    std::int32_t more = divisor(n_batch, most_seq), fewer = divisor(n_batch, more - 1);
    if (fewer == 0) more = 2, fewer = 1;
    const auto with = [&](std::int32_t n_seq) {
      // In shared cells the number of cells stays.
      BackendOptions less = shrunk(options, n_seq, options.n_ctx_seq, options.n_ctx_total);
      less.n_batch = n_batch;
      return foretell(info, less);
    };
    return on_line(options.n_seq, fewer, with(fewer), more, with(more));
  }
  const std::int64_t cells = options.kv_unified ? std::max(options.n_ctx_total, options.n_ctx_seq)
                                                : std::int64_t{options.n_ctx_seq} * options.n_seq;
  const std::uint64_t table =
      tables(info.memory_kind, static_cast<std::uint64_t>(cells), kCellBytes);
  if (table > budget_) {
    const std::int64_t streams = options.kv_unified ? 1 : options.n_seq;
    // In multiples of what llama.cpp rounds to.
    const auto most = static_cast<std::int32_t>(
        std::max<std::int64_t>(512, static_cast<std::int64_t>(budget_) * cells /
                                        static_cast<std::int64_t>(table) / streams / 512 * 512));
    const std::int64_t wanted = cells / streams;
    if (most < wanted) {
      const auto with = [&](std::int32_t n_ctx) {
        return try_out(info, shrunk(options, options.n_seq, n_ctx, n_ctx));
      };
      const std::int64_t padded = (wanted + 255) / 256 * 256;
      return on_line(padded, most / 2, with(most / 2), most, with(most));
    }
  }
  return try_out(info, options);
}

std::vector<DeviceMemory> LlamaMemory::try_out(const ModelInfo& info,
                                               const BackendOptions& options) {
  const llama_context_params params = make_context_params(info, options);
  const LogCapture log;
  const LogAsDebug quiet;
  std::string reason;
  try {
    const AssertsThrow guard;
    const std::unique_ptr<llama_context, decltype(&llama_free)> context(
        llama_init_from_model(copy_.get(), params), &llama_free);
    if (context) {
      if (!in_files_) in_files_ = plain_weights(context.get());
      return memory_of(context.get(), info.memory_kind);
    }
    reason = log.reason();
  } catch (const std::bad_alloc&) {
    reason = "out of memory";
  } catch (const std::exception& error) {
    reason = error.what();
  }
  if (log.out_of_memory() || reason == "out of memory") {
    throw InsufficientMemoryError("estimate_memory: got too little memory to try a context out (" +
                                  reason + "), expected some megabytes, free some");
  }
  throw BackendError("estimate_memory: llama.cpp made no context with n_ctx " +
                     std::to_string(params.n_ctx) + " (" + reason +
                     "), change the options that it names");
}

std::uint64_t LlamaMemory::mapped(const ModelInfo& info) {
  if (!is_mapped_) return 0;
  const std::lock_guard lock(mutex_);
  BackendOptions small;
  small.n_ctx_seq = small.n_ctx_total = 256;
  small.n_batch = 1;
  if (!in_files_) check_address_space(info, small);
  if (!in_files_ && copy(info) != nullptr) {
    try_out(info, small);
  }
  return in_files_.value_or(0);
}

}  // namespace pronk::inline v0
