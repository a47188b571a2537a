// Stands in for a context that could not be created anew after a fault.
#pragma once

#include "backend.h"

namespace pronk::inline v0 {

/// Holds nothing and computes nothing; has the measures of the context it replaces.
class DeadBackend final : public Backend {
 public:
  explicit DeadBackend(const Backend& replaced)
      : n_seq_(replaced.n_seq()),
        n_ctx_seq_(replaced.n_ctx_seq()),
        n_ctx_total_(replaced.n_ctx_total()),
        n_batch_(replaced.n_batch()),
        n_vocab_(replaced.n_vocab()) {}

  std::int32_t n_seq() const noexcept override { return n_seq_; }
  std::int32_t n_ctx_seq() const noexcept override { return n_ctx_seq_; }
  std::int32_t n_ctx_total() const noexcept override { return n_ctx_total_; }
  std::int32_t n_batch() const noexcept override { return n_batch_; }
  std::int32_t n_vocab() const noexcept override { return n_vocab_; }
  DecodeStatus decode(std::span<const BatchItem>) override { return DecodeStatus::kFailed; }
  std::span<const float> logits(std::int32_t) override { return {}; }
  bool seq_remove(std::int32_t, std::int32_t, std::int32_t) override { return true; }
  void seq_copy(std::int32_t, std::int32_t, std::int32_t, std::int32_t) override {}
  std::int32_t seq_pos_min(std::int32_t) const override { return -1; }
  std::int32_t seq_pos_max(std::int32_t) const override { return -1; }
  void abort(bool) noexcept override {}

 private:
  const std::int32_t n_seq_, n_ctx_seq_, n_ctx_total_, n_batch_, n_vocab_;
};

}  // namespace pronk::inline v0
