#include "llama_context_params.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "llama_model_info.h"
#include "pronk/error.h"

namespace pronk::inline v0 {
namespace {

constexpr std::int64_t kCellsPad = 256;  // llama.cpp rounds a context up to a multiple
constexpr std::int64_t kMaxCells = std::numeric_limits<std::int32_t>::max() - kCellsPad;

[[noreturn]] void refuse(const char* name, std::int64_t got, const std::string& expected) {
  throw InvalidArgumentError(std::string(name) + ": got " + std::to_string(got) + ", expected " +
                             expected);
}

void check(const char* name, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high)
    refuse(name, value, std::to_string(low) + " to " + std::to_string(high));
}

ggml_type cache_type(const char* name, const std::string& word) {
  constexpr ggml_type known[] = {GGML_TYPE_F32,  GGML_TYPE_F16,  GGML_TYPE_BF16, GGML_TYPE_Q8_0,
                                 GGML_TYPE_Q5_1, GGML_TYPE_Q5_0, GGML_TYPE_Q4_1, GGML_TYPE_Q4_0};
  std::string words;
  for (const ggml_type type : known) {
    if (word == ggml_type_name(type)) return type;
    words += (words.empty() ? "" : ", ") + std::string(ggml_type_name(type));
  }
  throw InvalidArgumentError(std::string(name) + ": got '" + word + "', expected one of " + words);
}

llama_flash_attn_type flash_attention(const std::string& word) {
  if (word == "auto") return LLAMA_FLASH_ATTN_TYPE_AUTO;
  if (word == "on") return LLAMA_FLASH_ATTN_TYPE_ENABLED;
  if (word == "off") return LLAMA_FLASH_ATTN_TYPE_DISABLED;
  throw InvalidArgumentError("flash_attention: got '" + word + "', expected auto, on or off");
}

void check_cache_types(const ModelInfo& info, const llama_context_params& params) {
  if (ggml_is_quantized(params.type_v) &&
      params.flash_attn_type == LLAMA_FLASH_ATTN_TYPE_DISABLED) {
    throw InvalidArgumentError(
        "type_v: got " + std::string(ggml_type_name(params.type_v)) +
        " without flash attention, expected f32, f16 or bf16, or set flash_attention to on");
  }
  const HeadSizes heads = head_sizes(info);
  const struct {
    const char* name;
    ggml_type type;
    std::int64_t size;
  } caches[] = {{"type_k", params.type_k, heads.key}, {"type_v", params.type_v, heads.value}};
  for (const auto& cache : caches) {
    const std::int64_t block = ggml_blck_size(cache.type);
    if (cache.size % block != 0) {
      throw InvalidArgumentError(std::string(cache.name) + ": got " + ggml_type_name(cache.type) +
                                 ", whose blocks of " + std::to_string(block) +
                                 " do not divide this model's heads of " +
                                 std::to_string(cache.size) + ", use f16");
    }
  }
}

}  // namespace

llama_context_params make_context_params(const ModelInfo& info, const BackendOptions& options) {
  if (info.memory_kind == MemoryKind::kNone) {
    throw InvalidArgumentError(
        "engine: got a '" + info.architecture +
        "' model, which has no memory to generate from, expected a causal language model");
  }
  if (info.has_encoder) {
    throw InvalidArgumentError("engine: got a '" + info.architecture +
                               "' model with an encoder, expected a decoder-only language model");
  }
  const auto max_seq = static_cast<std::int64_t>(llama_max_parallel_sequences());
  check("n_seq", options.n_seq, 1, max_seq);
  check("n_ctx", options.n_ctx_seq, 1, kMaxCells);
  check("n_batch", options.n_batch, 1, kMaxCells);
  if (options.n_batch < options.n_seq)
    refuse("n_batch", options.n_batch, "at least one token per sequence");
  check("n_outputs", options.n_outputs, 1, options.n_batch);

  const auto pad = [](std::int64_t cells) {
    return (cells + kCellsPad - 1) / kCellsPad * kCellsPad;
  };
  const std::int64_t n_cells =
      options.kv_unified ? pad(std::max(options.n_ctx_total, options.n_ctx_seq))
                         : pad(options.n_ctx_seq) * options.n_seq;  // streams are padded one by one
  check("n_ctx of all sequences", n_cells, 1, kMaxCells);

  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<std::uint32_t>(n_cells);
  // One piece per decode: an abort is noticed between the pieces of a batch only on the CPU, and a
  // piece that fails leaves those before it applied.
  params.n_batch = static_cast<std::uint32_t>(options.n_batch);
  params.n_ubatch = params.n_batch;
  params.n_seq_max = static_cast<std::uint32_t>(options.n_seq);
  // Fewer than one per sequence and llama.cpp aborts; more than needed, and it reserves rows of
  // logits for them.
  params.n_outputs_max = static_cast<std::uint32_t>(std::max(options.n_outputs, options.n_seq));
  params.n_threads = options.n_threads;
  params.n_threads_batch = options.n_threads;  // used whenever a batch has more than one token
  params.kv_unified = options.kv_unified;
  params.flash_attn_type = flash_attention(options.flash_attention);
  params.type_k = cache_type("type_k", options.type_k);
  params.type_v = cache_type("type_v", options.type_v);
  params.embeddings = false;
  params.no_perf = true;
  // A small window cache forgets what lies behind the window, so that going back to a shared prefix
  // would mean evaluating all of it again; and cells that sequences share are never recycled in it,
  // until it is full. The price is the memory of a full cache for the windowed layers.
  params.swa_full = true;
  check_cache_types(info, params);
  return params;
}

}  // namespace pronk::inline v0
