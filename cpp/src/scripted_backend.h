// A context of a scripted model.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backend.h"
#include "engine_impl.h"
#include "scripted_control.h"
#include "scripted_language.h"
#include "scripted_memory.h"

namespace pronk::inline v0 {

class ScriptedBackend final : public Backend {
 public:
  /// Throws InvalidArgumentError on options that llama.cpp refuses.
  ScriptedBackend(std::shared_ptr<const ScriptedLanguage> language,
                  std::shared_ptr<ScriptedControl> control, const BackendOptions& options);
  ~ScriptedBackend() override;

  std::int32_t n_seq() const noexcept override { return options_.n_seq; }
  std::int32_t n_ctx_seq() const noexcept override { return options_.n_ctx_seq; }
  std::int32_t n_ctx_total() const noexcept override { return options_.n_ctx_total; }
  std::int32_t n_batch() const noexcept override { return options_.n_batch; }
  std::int32_t n_vocab() const noexcept override { return language_->n_vocab(); }

  DecodeStatus decode(std::span<const BatchItem> batch) override;
  std::span<const float> logits(std::int32_t index) override;
  bool seq_remove(std::int32_t seq, std::int32_t p0, std::int32_t p1) override;
  void seq_copy(std::int32_t from, std::int32_t to, std::int32_t p0, std::int32_t p1) override;
  std::int32_t seq_pos_min(std::int32_t seq) const override;
  std::int32_t seq_pos_max(std::int32_t seq) const override;
  void abort(bool on) noexcept override;

  /// The tokens of every sequence, from any thread.
  std::vector<std::vector<Token>> sequences() const;
  std::int64_t cells_used() const;

 private:
  class OneThread;
  /// Takes the batch into memory, as far as the fault lets it; `applied` says how far.
  DecodeStatus apply(std::span<const BatchItem> batch, bool aborted, const testing::Fault* fault,
                     std::size_t& applied);
  void add_row(const BatchItem& item);
  template <class Use>
  auto with_memory(Use&& use) const;
  void check_batch(std::span<const BatchItem> batch) const;
  [[noreturn]] void violate(const std::string& what) const;

  const std::shared_ptr<const ScriptedLanguage> language_;
  const std::shared_ptr<ScriptedControl> control_;
  const BackendOptions options_;
  mutable std::atomic<bool> in_use_{false};

  // Touched by the thread that uses the backend only.
  std::vector<float> rows_;  // n_vocab() each
  std::vector<std::int32_t>
      row_of_;  // by batch item, -1 for none; empty without a successful decode

  mutable std::mutex memory_mutex_;
  mutable ScriptedMemory memory_;  // guarded by memory_mutex_

  const std::int32_t number_;  // last: from its creation on the control reads the memory
};

}  // namespace pronk::inline v0
