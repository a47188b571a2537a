// How often each of the last tokens occurred, for the penalties.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pronk/params.h"

namespace pronk::inline v0 {

/// A window over a growing sequence of tokens. Its size goes with the window, not with the
/// vocabulary: hundreds of generations have one each.
class TokenWindow {
 public:
  struct Count {
    Token token = 0;
    std::int32_t count = 0;  ///< > 0
  };

  /// `last_n` tokens are counted; -1 is all, 0 is none.
  explicit TokenWindow(std::int32_t last_n);

  void add(Token token);
  /// The same for many, such as a prompt, in n log n.
  void add(std::span<const Token> tokens);

  /// The distinct tokens of the window, lowest id first.
  std::span<const Count> counts() const noexcept { return counts_; }

 private:
  bool full() const noexcept { return bounded_ && history_.size() == last_n_; }
  void remember(Token token);
  void increment(Token token);
  void decrement(Token token);

  std::size_t last_n_;
  bool bounded_;
  std::vector<Token> history_;  // a ring once it is full
  std::size_t oldest_ = 0;      // index in a full ring
  std::vector<Count> counts_;
};

}  // namespace pronk::inline v0
