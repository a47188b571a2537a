// Turns the bytes of tokens into text that can be shown: whole UTF-8 only, stop strings held back.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "utf8.h"

namespace pronk::inline v0 {

/// Finds the first of several strings in text that arrives byte by byte (Aho and Corasick 1975):
/// the cost per byte does not depend on how many strings there are or how long they are.
class StopMatcher {
 public:
  /// No stop may be empty.
  explicit StopMatcher(const std::vector<std::string>& stops);

  /// Takes one byte. Returns the length of the longest stop that ends with it, 0 for none.
  std::int32_t advance(unsigned char byte) noexcept;
  /// How many of the last bytes may be the beginning of a stop.
  std::int32_t pending() const noexcept { return nodes_[static_cast<std::size_t>(state_)].depth; }

 private:
  // A prefix of some stop. Children are a list: no node has more of them than there are stops, most
  // have one.
  struct Node {
    std::int32_t child = -1;    // first of the list
    std::int32_t sibling = -1;  // next in the parent's list
    std::int32_t fail = 0;      // the longest proper suffix that is a prefix of some stop
    std::int32_t depth = 0;     // bytes
    std::int32_t match = 0;     // length of the longest stop that ends here, 0 for none
    unsigned char byte = 0;     // that leads here
  };

  std::int32_t child_of(std::int32_t node, unsigned char byte) const noexcept;
  void insert(std::string_view stop);
  void link();

  std::vector<Node> nodes_;
  std::array<std::int32_t, 256> from_root_;  // most bytes of most texts start no stop
  std::int32_t state_ = 0;
};

/// The text ends at the first byte that completes a stop, and is cut where that stop begins; of
/// several stops that end there, the longest counts. Stops are matched against the decoded text, so
/// a stop may hold U+FFFD. The text does not depend on how the bytes were cut into tokens.
class TextStream {
 public:
  /// `stops` have passed validate(): none is empty, all are valid UTF-8.
  explicit TextStream(const std::vector<std::string>& stops);

  /// Adds the bytes of one token. Returns true when a stop string was completed: the text then ends
  /// before it, and all further bytes are ignored.
  bool push(std::string_view bytes);
  /// The generation ended without a stop string: releases what was held back. A character that is
  /// still incomplete becomes U+FFFD, which may complete a stop that holds one.
  void finish();
  /// Moves out the text that became certain since the last call.
  std::string take();
  bool stopped() const noexcept { return stopped_; }

 private:
  void match_from(std::size_t begin);

  Utf8Decoder decoder_;
  StopMatcher matcher_;
  std::string text_;      // decoded, not yet taken
  std::size_t held_ = 0;  // so many last bytes of it may belong to a stop
  bool matching_;         // there are stops to look for
  bool stopped_ = false;
};

}  // namespace pronk::inline v0
