// The memory of one scripted context. It keeps tokens where a real one keeps keys and values, and
// allows and refuses what llama.cpp's memory of the same kind does.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend.h"
#include "engine_impl.h"
#include "scripted_language.h"

namespace pronk::inline v0 {

/// Cells of an attention cache. Sequences of one stream share cells; a cell is free when no
/// sequence owns it.
class ScriptedCells {
 public:
  /// One stream of `capacity` cells if `unified`, else a stream of that size for each sequence.
  ScriptedCells(std::int32_t n_seq, std::int32_t capacity, bool unified);

  bool fits(std::span<const BatchItem> batch) const;
  void add(std::int32_t seq, ScriptedEntry entry);
  void remove(std::int32_t seq, std::int32_t p0, std::int32_t p1);
  void copy(std::int32_t from, std::int32_t to, std::int32_t p0, std::int32_t p1);
  std::int32_t pos_min(std::int32_t seq) const;
  std::int32_t pos_max(std::int32_t seq) const;
  /// Entries of `seq` with a position in [p0, p1).
  std::vector<ScriptedEntry> entries(std::int32_t seq, std::int32_t p0, std::int32_t p1) const;
  std::int64_t used() const;

 private:
  struct Cell {
    ScriptedEntry entry;
    std::int32_t owners = 0;
  };
  struct Stream {
    std::vector<Cell> cells;
    std::vector<std::size_t> free;
  };
  Stream& stream_of(std::int32_t seq);
  const Stream& stream_of(std::int32_t seq) const;

  bool unified_;
  std::int32_t capacity_;
  std::vector<Stream> streams_;                      // cells are created as they are needed
  std::vector<std::vector<std::size_t>> sequences_;  // cells of each sequence, by position
};

/// Not thread-safe. Uses that abort llama.cpp throw std::logic_error.
class ScriptedMemory {
 public:
  ScriptedMemory(MemoryKind kind, std::int32_t n_swa, const BackendOptions& options);

  /// kOk when the whole batch can be applied, else kInvalidBatch or kNoSlot.
  DecodeStatus check(std::span<const BatchItem> batch, std::int32_t n_vocab) const;
  void apply(const BatchItem& item);
  /// The leftovers of a batch whose `rest` failed in the middle of the computation.
  void fail(std::span<const BatchItem> rest);
  /// What the model sees at position `pos` of `seq`.
  ScriptedView view(std::int32_t seq, std::int32_t pos) const;

  bool remove(std::int32_t seq, std::int32_t p0, std::int32_t p1);
  void copy(std::int32_t from, std::int32_t to, std::int32_t p0, std::int32_t p1);
  std::int32_t pos_min(std::int32_t seq) const;
  std::int32_t pos_max(std::int32_t seq) const;

  std::vector<Token> tokens(std::int32_t seq) const;
  std::int64_t cells_used() const;

 private:
  bool has_cells() const { return kind_ != MemoryKind::kRecurrent; }
  bool has_window() const { return kind_ == MemoryKind::kSlidingWindow; }
  bool has_state() const { return kind_ == MemoryKind::kRecurrent || kind_ == MemoryKind::kHybrid; }
  void check_seq(const char* what, std::int32_t seq) const;
  std::int32_t state_pos(std::int32_t seq) const;

  MemoryKind kind_;
  std::int32_t n_swa_;
  std::int32_t n_seq_;
  std::int32_t n_ctx_seq_;
  bool unified_;
  ScriptedCells cells_;   // every token; unused if the kind has none
  ScriptedCells window_;  // sliding window: the tokens that are still inside
  // Recurrent state: all that went into it, since a state cannot forget. Empty for an empty
  // sequence.
  std::vector<std::vector<ScriptedEntry>> states_;
};

}  // namespace pronk::inline v0
