// The compute threads that all contexts of a pool share.
#pragma once

#include <cstdint>
#include <mutex>

#include "engine_impl.h"
#include "ggml-cpu.h"
#include "process.h"

namespace pronk::inline v0 {

class LlamaThreads final : public ComputeThreads {
 public:
  /// 1 to 512 threads, of which the one that decodes is the first. Throws InvalidArgumentError,
  /// BackendError.
  explicit LlamaThreads(std::int32_t n_threads);
  ~LlamaThreads() override;
  LlamaThreads(const LlamaThreads&) = delete;
  LlamaThreads& operator=(const LlamaThreads&) = delete;

  std::int32_t n_threads() const noexcept { return n_threads_; }
  ggml_threadpool* pool() const noexcept { return pool_; }

  /// To be held while a context computes: ggml keeps the graph in the pool, and a second one would
  /// overwrite it.
  std::mutex& computing() noexcept { return computing_; }

 private:
  const std::int32_t n_threads_;
  const ProcessBound process_;
  ggml_threadpool* pool_ = nullptr;
  std::mutex computing_;
};

}  // namespace pronk::inline v0
