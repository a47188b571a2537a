// What contexts take, by llama.cpp's own accounting: of one that exists, and of one to come.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "context_memory.h"
#include "engine_impl.h"
#include "llama.h"
#include "pronk/engine.h"

namespace pronk::inline v0 {

/// What a context has taken.
std::vector<DeviceMemory> memory_of(const llama_context* context, MemoryKind kind);

/// Foretells what contexts take. llama.cpp makes them on trial, of a copy of the model without
/// weights, and allocates nothing but tables; of those that are too large even for that it makes
/// smaller ones, and the rest follows from these. From any thread.
class LlamaMemory {
 public:
  /// Loads the model once more, without weights and vocabulary.
  using Load = std::function<std::shared_ptr<llama_model>()>;

  /// `n_tensors` of the model's files; `mapped`: the weights in main memory are pages of them.
  LlamaMemory(Load load, std::uint64_t n_tensors, bool mapped);

  /// Throws InvalidArgumentError, BackendError, InsufficientMemoryError. Where the model cannot be
  /// loaded again, a warning in the log says why, and the result has the KV cache alone, if that.
  ContextMemory of_context(const ModelInfo& info, const BackendOptions& options);
  /// Bytes of the model's files that are in use as weights.
  std::uint64_t mapped(const ModelInfo& info);

  /// Bytes that a context on trial may take itself; for tests.
  void set_budget(std::uint64_t bytes) { budget_ = bytes; }

 private:
  llama_model* copy(const ModelInfo& info);
  std::uint64_t check_address_space(const ModelInfo& info, const BackendOptions& options) const;
  std::uint64_t state_bytes(const ModelInfo& info, const BackendOptions& options);
  std::vector<DeviceMemory> foretell(const ModelInfo& info, const BackendOptions& options);
  std::vector<DeviceMemory> try_out(const ModelInfo& info, const BackendOptions& options);

  const Load load_;
  const std::uint64_t n_tensors_;
  const bool is_mapped_;
  std::uint64_t budget_ = std::uint64_t{16} << 20;
  std::mutex mutex_;
  bool failed_ = false;                    // guarded by mutex_; there is no copy
  std::shared_ptr<llama_model> copy_;      // guarded by mutex_
  std::optional<std::uint64_t> state_;     // guarded by mutex_; bytes of a recurrent state
  std::optional<std::uint64_t> in_files_;  // guarded by mutex_; weights that may be mapped
};

}  // namespace pronk::inline v0
