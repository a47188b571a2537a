// What the decode loop needs of a model runtime: one context with a number of sequences.
// Implemented by llama.cpp and by a script (pronk.testing). Used by one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pronk/engine.h"
#include "pronk/params.h"

namespace pronk::inline v0 {

struct BatchItem {
  Token token = 0;
  std::int32_t pos = 0;
  std::int32_t seq = 0;
  bool output = false;  ///< logits wanted
};

/// Result of a decode, after llama.cpp's return codes.
enum class DecodeStatus : int {
  kOk = 0,
  kNoSlot,        ///< no room in the KV cache: nothing was applied
  kAborted,       ///< by the abort hook: a part may have been applied
  kInvalidBatch,  ///< refused: nothing was applied
  kNoMemory,      ///< allocation failed: a part may have been applied
  kFailed,        ///< compute failed or threw: a part may have been applied
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::int32_t n_seq() const noexcept = 0;
  virtual std::int32_t n_ctx_seq() const noexcept = 0;  ///< tokens that one sequence may hold
  virtual std::int32_t n_ctx_total()
      const noexcept = 0;  ///< tokens that all sequences together may hold
  virtual std::int32_t n_batch() const noexcept = 0;
  virtual std::int32_t n_vocab() const noexcept = 0;
  /// What it has taken of each device; empty where that is not known.
  virtual std::vector<DeviceMemory> memory() const { return {}; }

  /// At most n_batch() items. Throws nothing of llama.cpp's; the scripted backend may throw to play
  /// a fault.
  virtual DecodeStatus decode(std::span<const BatchItem> batch) = 0;
  /// The row of the batch item `index` of the last decode, n_vocab() floats, valid until the next
  /// one. Items without `output` have none: an empty span.
  virtual std::span<const float> logits(std::int32_t index) = 0;

  // Memory of sequences. Positions are half open [p0, p1); -1 means from the start, to the end.
  virtual bool seq_remove(std::int32_t seq, std::int32_t p0, std::int32_t p1) = 0;
  virtual void seq_copy(std::int32_t from, std::int32_t to, std::int32_t p0, std::int32_t p1) = 0;
  virtual std::int32_t seq_pos_min(std::int32_t seq) const = 0;  ///< -1 when empty
  virtual std::int32_t seq_pos_max(std::int32_t seq) const = 0;  ///< -1 when empty

  /// Computes with so many threads from the next decode() on: 1 to as many as the context was made
  /// with. Ignored where there is nothing to choose.
  virtual void set_threads(std::int32_t n_threads) { (void)n_threads; }

  /// Makes a running decode() return kAborted soon, where the device allows it. From any thread.
  virtual void abort(bool on) noexcept = 0;
};

}  // namespace pronk::inline v0
