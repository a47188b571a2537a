// The sequences of all contexts of a pool: what each holds in the KV cache, who uses it, and which
// known prefix a new prompt can start from. Used by the decode thread alone.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend.h"
#include "cell_count.h"
#include "pronk/engine.h"
#include "pronk/params.h"

namespace pronk::inline v0 {

/// One sequence of one context. Invariant between steps: the context holds exactly the positions
/// [0, tokens.size()).
struct Sequence {
  std::int32_t context = 0;  ///< index of the backend
  std::int32_t id = 0;       ///< sequence id within it
  std::vector<Token> tokens;
  CellCount::Cells cells;  ///< one per token where sequences share cells, else none
  std::size_t exact =
      0;              ///< the first so many were evaluated as a fresh prompt is, in whole chunks
  std::string scope;  ///< only prompts of the same scope may start from it
  std::uint64_t last_used = 0;
  bool busy = false;   ///< a generation runs in it
  bool shared = true;  ///< others may start from it
  /// Length at which extend() leaves a copy for others, if it ends exactly there; 0 for none.
  std::size_t checkpoint_at = 0;
  /// A copy that was left where prompts part. Who starts from it leaves it as it is.
  bool checkpoint = false;
};

/// Common tokens, beyond those already known, for which a prompt waits or a checkpoint is left.
constexpr std::size_t kWorthSharing = 16;

struct SequencePoolOptions {
  MemoryKind kind = MemoryKind::kPlain;
  std::int32_t n_swa = 0;
  /// Tokens of a chunk, where a reused prefix must have the very bits of a fresh evaluation: then
  /// only whole chunks of earlier prompts are reused. How many tokens go through the model together
  /// shows in the last bits of the KV cache. 0 reuses everything.
  std::int32_t exact_chunk = 0;
  /// Where only sequences of consecutive ids share a graph, generations run in the first so many,
  /// and the others park what is not in use. 0 lets them run anywhere.
  std::int32_t n_lanes = 0;
  /// Most tokens that idle sequences may hold together: the least recently used go first. Negative
  /// is without limit.
  std::int64_t max_idle_tokens = -1;
  /// A copied prefix costs no cells, since the sequences of a context share theirs.
  bool share_cells = false;
};

struct ReuseCounters {
  std::uint64_t hits = 0;    ///< prompts that started from a known prefix
  std::uint64_t reused = 0;  ///< tokens of them
  std::uint64_t refused =
      0;  ///< prompts whose longest known prefix was not usable in this kind of memory
  const char* refused_reason = "";
};

std::size_t common_prefix(std::span<const Token> a, std::span<const Token> b);

class SequencePool {
 public:
  /// `contexts` outlive the pool or are replaced by replace_context().
  SequencePool(std::vector<Backend*> contexts, const SequencePoolOptions& options);

  /// A sequence for `prompt`, which holds its longest reusable known prefix, shorter than the
  /// prompt, and nothing else. Null when every sequence is busy.
  ///
  /// Where a longer prefix is known but its memory cannot be cut back to it, this prompt has to
  /// evaluate it again, and others that begin alike are likely to follow: its `checkpoint_at` says
  /// where to pause, so that they find the state of exactly that prefix.
  Sequence* take(std::span<const Token> prompt, const std::string& scope, bool reuse);
  /// Length of the longest prefix that `prompt` could start from.
  std::size_t longest_known(std::span<const Token> prompt, const std::string& scope) const;
  /// The generation is over; `keep` leaves the content for others to start from.
  void give_back(Sequence& sequence, bool keep);

  /// Takes over what a successful decode added, and leaves the checkpoint that is due there.
  void extend(Sequence& sequence, std::span<const Token> tokens);
  /// Cuts a sequence back to its first `n` tokens, or empties it where its memory cannot be cut.
  /// After a failed decode the context may hold more than we know, and a recurrent state may be
  /// garbage: `dirty` says so.
  void cut(Sequence& sequence, std::size_t n, bool dirty);
  /// Empties the least recently used idle sequence of a context. False when there is none.
  bool evict(std::int32_t context);
  /// True when a sequence of the context could not be emptied: the context has to be created anew.
  bool broken(std::int32_t context) const { return broken_[context]; }
  void mark_broken(std::int32_t context) { broken_[context] = true; }
  /// The context was created anew: its sequences are empty.
  void replace_context(std::int32_t index, Backend* context);

  const std::vector<std::unique_ptr<Sequence>>& sequences() const noexcept { return sequences_; }
  const ReuseCounters& counters() const noexcept { return counters_; }
  /// KV cells in use in all contexts; a recurrent state counts as one.
  std::uint64_t cells_used() const noexcept;

 private:
  struct Source {
    Sequence* sequence = nullptr;
    std::size_t n = 0;
    std::size_t refused = 0;  ///< length of the longest prefix that is known but not usable
  };

  bool may_run(const Sequence& sequence) const {
    return options_.n_lanes == 0 || sequence.id < options_.n_lanes;
  }
  Backend& context_of(const Sequence& sequence) const { return *contexts_[sequence.context]; }
  Source best_source(std::span<const Token> prompt, const std::string& scope);
  const char* refusal(const Sequence& source, std::size_t n) const;
  Sequence* target_for(const Source& source);
  Sequence* free_lane();
  void limit_idle();
  void park(const Sequence& lane, const Sequence* except);
  void leave_checkpoint(const Sequence& running);
  bool holds_exactly(const Sequence& sequence) const;
  bool window_covers(const Sequence& sequence, std::size_t n) const;
  bool remove(Sequence& sequence, std::int32_t from) noexcept;
  bool copy(const Sequence& source, Sequence& target);
  void clear(Sequence& sequence) noexcept;

  std::vector<Backend*> contexts_;
  std::vector<bool> broken_;
  const SequencePoolOptions options_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  CellCount cells_;  // where cells are shared, which means that there is one context
  ReuseCounters counters_;
  std::uint64_t use_number_ = 0;
};

}  // namespace pronk::inline v0
