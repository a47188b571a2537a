// Counts cells that sequences share, each once however many sequences own it.
#pragma once

#include <cstdint>
#include <vector>

namespace pronk::inline v0 {

/// Mirrors a KV cache of shared cells by our own book-keeping: the cache itself says only what each
/// sequence holds, and asking it would take a walk over all of its cells.
class CellCount {
 public:
  using Cells = std::vector<std::uint32_t>;  ///< of one sequence, a cell per position

  /// The sequence evaluated `n` tokens more.
  void append(Cells& cells, std::size_t n) {
    cells.reserve(cells.size() + n);
    for (; n > 0; --n) {
      if (free_.empty()) {
        owners_.push_back(0);
        free_.reserve(owners_.capacity());  // so that shrink() never allocates
        free_.push_back(static_cast<std::uint32_t>(owners_.size() - 1));
      }
      owners_[free_.back()] = 1;
      cells.push_back(free_.back());
      free_.pop_back();
    }
  }

  /// The empty sequence `target` becomes a co-owner of all cells of `source`.
  void share(const Cells& source, Cells& target) {
    target = source;
    for (const std::uint32_t cell : target) ++owners_[cell];
  }

  /// The sequence gives up all but its first `n` cells.
  void shrink(Cells& cells, std::size_t n) noexcept {
    while (cells.size() > n) {
      if (--owners_[cells.back()] == 0) free_.push_back(cells.back());
      cells.pop_back();
    }
  }

  std::uint64_t used() const noexcept { return owners_.size() - free_.size(); }

 private:
  std::vector<std::uint32_t> owners_;  // of each cell, how many sequences
  std::vector<std::uint32_t> free_;
};

}  // namespace pronk::inline v0
