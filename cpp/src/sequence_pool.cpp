#include "sequence_pool.h"

#include <algorithm>
#include <utility>

namespace pronk::inline v0 {

std::size_t common_prefix(std::span<const Token> a, std::span<const Token> b) {
  const std::size_t n = std::min(a.size(), b.size());
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.begin() + n, b.begin()).first -
                                  a.begin());
}

SequencePool::SequencePool(std::vector<Backend*> contexts, const SequencePoolOptions& options)
    : contexts_(std::move(contexts)), broken_(contexts_.size(), false), options_(options) {
  for (std::size_t c = 0; c < contexts_.size(); ++c) {
    for (std::int32_t id = 0; id < contexts_[c]->n_seq(); ++id) {
      auto sequence = std::make_unique<Sequence>();
      sequence->context = static_cast<std::int32_t>(c);
      sequence->id = id;
      sequences_.push_back(std::move(sequence));
    }
  }
}

bool SequencePool::holds_exactly(const Sequence& sequence) const {
  return context_of(sequence).seq_pos_max(sequence.id) + 1 ==
         static_cast<std::int32_t>(sequence.tokens.size());
}

bool SequencePool::remove(Sequence& sequence, std::int32_t from) noexcept {
  try {
    return context_of(sequence).seq_remove(sequence.id, from, -1);
  } catch (...) {
    return false;
  }
}

// The whole sequence, since split streams and recurrent states allow nothing less. False when it
// failed.
bool SequencePool::copy(const Sequence& source, Sequence& target) {
  std::vector<Token> tokens = source.tokens;
  cells_.share(source.cells, target.cells);
  try {
    context_of(target).seq_copy(source.id, target.id, -1, -1);
  } catch (...) {
    clear(target);
    return false;
  }
  target.tokens = std::move(tokens);
  return true;
}

void SequencePool::clear(Sequence& sequence) noexcept {
  sequence.tokens.clear();
  cells_.shrink(sequence.cells, 0);
  sequence.exact = 0;
  sequence.checkpoint = false;
  if (!remove(sequence, -1) || !holds_exactly(sequence)) broken_[sequence.context] = true;
}

// Why a prompt may not start from the first `n` tokens of `source`, by the rules of the memory;
// null when it may. A recurrent state exists at one position only: the end. A sliding window must
// still hold the cells that the next token attends to.
const char* SequencePool::refusal(const Sequence& source, std::size_t n) const {
  if (options_.kind == MemoryKind::kRecurrent || options_.kind == MemoryKind::kHybrid) {
    if (n != source.tokens.size())
      return "a recurrent state cannot be cut back to a shorter prefix";
  } else if (!window_covers(source, n)) {
    return "the sliding window has moved past the prefix";
  }
  return nullptr;
}

// Whether the cells that a token at position `n` attends to are still there.
bool SequencePool::window_covers(const Sequence& sequence, std::size_t n) const {
  if (options_.kind != MemoryKind::kSlidingWindow) return true;
  const std::int32_t first = std::max(0, static_cast<std::int32_t>(n) - options_.n_swa + 1);
  return context_of(sequence).seq_pos_min(sequence.id) <= first;
}

SequencePool::Source SequencePool::best_source(std::span<const Token> prompt,
                                               const std::string& scope) {
  // The last token is always evaluated: its logits are needed.
  const std::span<const Token> reusable = prompt.first(prompt.size() - 1);
  Source best;
  std::size_t longest_refused = 0;
  const char* reason = nullptr;
  for (const auto& sequence : sequences_) {
    if (sequence->tokens.empty() || !sequence->shared || sequence->scope != scope) continue;
    // A context of a single sequence has nowhere to copy a prefix to.
    if (sequence->busy && contexts_[sequence->context]->n_seq() == 1) continue;
    std::size_t n = common_prefix(sequence->tokens, reusable);
    if (options_.exact_chunk > 0) {
      n = std::min(n, sequence->exact);
      n -= n % static_cast<std::size_t>(options_.exact_chunk);
    }
    if (n <= best.n) continue;
    if (const char* refused = refusal(*sequence, n)) {
      if (n > longest_refused) {
        longest_refused = n;
        reason = refused;
      }
    } else {
      best = {sequence.get(), n};
    }
  }
  if (longest_refused > best.n) {
    ++counters_.refused;
    counters_.refused_reason = reason;
    best.refused = longest_refused;
  }
  return best;
}

std::size_t SequencePool::longest_known(std::span<const Token> prompt,
                                        const std::string& scope) const {
  std::size_t longest = 0;
  for (const auto& sequence : sequences_) {
    if (!sequence->shared || sequence->scope != scope) continue;
    const std::size_t n = common_prefix(sequence->tokens, prompt.first(prompt.size() - 1));
    if (n > longest && refusal(*sequence, n) == nullptr) longest = n;
  }
  return longest;
}

// A lane that leaves the running ones in as few groups of neighbours as can be; of these an empty
// one, else the least recently used.
Sequence* SequencePool::free_lane() {
  Sequence* best = nullptr;
  int best_joined = -1;
  const auto busy = [this](std::int32_t id) {
    return id >= 0 && id < options_.n_lanes && sequences_[static_cast<std::size_t>(id)]->busy;
  };
  for (std::int32_t id = 0; id < options_.n_lanes; ++id) {
    Sequence* lane = sequences_[static_cast<std::size_t>(id)].get();
    if (lane->busy) continue;
    const int joined = busy(id - 1) + busy(id + 1);
    const bool better = best == nullptr || joined > best_joined ||
                        (joined == best_joined && !best->tokens.empty() &&
                         (lane->tokens.empty() || lane->last_used < best->last_used));
    if (better) {
      best = lane;
      best_joined = joined;
    }
  }
  return best;
}

// Keeps what a lane holds for others to start from, where it is worth more than what is parked.
void SequencePool::park(const Sequence& lane, const Sequence* except) {
  if (lane.tokens.empty() || !lane.shared) return;
  Sequence* slot = nullptr;
  for (const auto& sequence : sequences_) {
    if (may_run(*sequence) || sequence.get() == except) continue;
    if (slot == nullptr || sequence->tokens.empty() || sequence->last_used < slot->last_used)
      slot = sequence.get();
    if (slot->tokens.empty()) break;
  }
  if (slot == nullptr || (!slot->tokens.empty() && slot->last_used > lane.last_used)) return;
  clear(*slot);
  if (!copy(lane, *slot)) return;
  slot->scope = lane.scope;
  slot->shared = true;
  slot->last_used = lane.last_used;
}

// A copy of what runs, in an empty sequence or in place of the least recently used idle one.
void SequencePool::leave_checkpoint(const Sequence& running) {
  Sequence* slot = nullptr;
  for (const auto& sequence : sequences_) {
    if (sequence->busy || sequence->context != running.context) continue;
    if (options_.n_lanes > 0 && may_run(*sequence)) continue;  // not among those that run
    if (slot == nullptr || sequence->tokens.empty() || sequence->last_used < slot->last_used)
      slot = sequence.get();
    if (slot->tokens.empty()) break;
  }
  if (slot == nullptr) return;
  clear(*slot);
  if (!copy(running, *slot)) return;
  slot->scope = running.scope;
  slot->shared = true;
  slot->checkpoint = true;
  slot->last_used = ++use_number_;
  limit_idle();
}

// Where the prompt is to run: in the source itself when nothing of it would be lost, or when it is
// the one to lose anyway; else in an empty sequence, else in the least recently used idle one.
Sequence* SequencePool::target_for(const Source& source) {
  Sequence* const in_place = source.sequence != nullptr && !source.sequence->busy &&
                                     may_run(*source.sequence) &&
                                     (source.n == source.sequence->tokens.size() ||
                                      contexts_[source.sequence->context]->n_seq() == 1)
                                 ? source.sequence
                                 : nullptr;
  if (in_place != nullptr && !in_place->checkpoint) return in_place;
  if (options_.n_lanes > 0) return free_lane();
  Sequence* target = in_place;
  for (const auto& sequence : sequences_) {
    if (sequence->busy || sequence.get() == in_place) continue;
    if (source.sequence != nullptr && sequence->context != source.sequence->context) continue;
    if (sequence->tokens.empty()) return sequence.get();
    if (target == nullptr || target == in_place || sequence->last_used < target->last_used)
      target = sequence.get();
  }
  return target;
}

Sequence* SequencePool::take(std::span<const Token> prompt, const std::string& scope, bool reuse) {
  Source source;
  if (reuse) source = best_source(prompt, scope);
  Sequence* target = target_for(source);
  if (target == nullptr) return nullptr;
  const bool loses = target != source.sequence || source.n < target->tokens.size();
  if (options_.n_lanes > 0 && loses) park(*target, source.sequence);
  if (target == source.sequence) {
    cut(*target, source.n, false);
  } else {
    clear(*target);
    if (source.sequence != nullptr && copy(*source.sequence, *target)) {
      const bool moved = source.n == source.sequence->tokens.size() && !may_run(*source.sequence) &&
                         !source.sequence->checkpoint;
      if (moved) {
        clear(*source.sequence);  // its place is free for the next to be parked
      } else {
        source.sequence->last_used = ++use_number_;
      }
      cut(*target, source.n, false);
    }
  }
  // The context has the last word: a prefix that it does not hold as we think is not used.
  if (!holds_exactly(*target)) clear(*target);
  if (!target->tokens.empty()) {
    ++counters_.hits;
    counters_.reused += target->tokens.size();
  }
  target->scope = scope;
  target->shared = reuse;
  target->checkpoint = false;
  const bool worth = source.refused >= target->tokens.size() + kWorthSharing;
  target->checkpoint_at = worth && context_of(*target).n_seq() > 1 ? source.refused : 0;
  target->busy = true;
  target->last_used = ++use_number_;
  return target;
}

void SequencePool::give_back(Sequence& sequence, bool keep) {
  sequence.busy = false;
  sequence.last_used = ++use_number_;
  if (!keep || !holds_exactly(sequence)) clear(sequence);
  limit_idle();
}

void SequencePool::limit_idle() {
  if (options_.max_idle_tokens < 0) return;
  std::int64_t idle = 0;
  for (const auto& sequence : sequences_) {
    if (!sequence->busy) idle += static_cast<std::int64_t>(sequence->tokens.size());
  }
  while (idle > options_.max_idle_tokens) {
    Sequence* oldest = nullptr;
    for (const auto& sequence : sequences_) {
      if (sequence->busy || sequence->tokens.empty()) continue;
      if (oldest == nullptr || sequence->last_used < oldest->last_used) oldest = sequence.get();
    }
    idle -= static_cast<std::int64_t>(oldest->tokens.size());
    clear(*oldest);
  }
}

void SequencePool::extend(Sequence& sequence, std::span<const Token> tokens) {
  if (sequence.exact == sequence.tokens.size() &&
      tokens.size() == static_cast<std::size_t>(options_.exact_chunk)) {
    sequence.exact += tokens.size();
  }
  if (options_.share_cells) cells_.append(sequence.cells, tokens.size());
  sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
  if (sequence.checkpoint_at == sequence.tokens.size()) {
    sequence.checkpoint_at = 0;
    leave_checkpoint(sequence);
  }
}

void SequencePool::cut(Sequence& sequence, std::size_t n, bool dirty) {
  const bool cuttable =
      options_.kind != MemoryKind::kRecurrent && options_.kind != MemoryKind::kHybrid;
  if (n == sequence.tokens.size() && !dirty) return;
  if (n == 0 || (dirty && !cuttable) || !remove(sequence, static_cast<std::int32_t>(n))) {
    clear(sequence);
    return;
  }
  sequence.tokens.resize(n);
  cells_.shrink(sequence.cells, n);
  sequence.exact = std::min(sequence.exact, n);
  // What was applied before a decode failed may have moved the window.
  if (!holds_exactly(sequence) || !window_covers(sequence, n)) clear(sequence);
}

bool SequencePool::evict(std::int32_t context) {
  Sequence* oldest = nullptr;
  for (const auto& sequence : sequences_) {
    if (sequence->context != context || sequence->busy || sequence->tokens.empty()) continue;
    if (oldest == nullptr || sequence->last_used < oldest->last_used) oldest = sequence.get();
  }
  if (oldest == nullptr) return false;
  clear(*oldest);
  return true;
}

std::uint64_t SequencePool::cells_used() const noexcept {
  if (options_.share_cells) return cells_.used();
  std::uint64_t used = 0;
  for (const auto& sequence : sequences_) {
    const std::size_t n = sequence->tokens.size();
    used += options_.kind == MemoryKind::kRecurrent ? std::min<std::size_t>(n, 1) : n;
  }
  return used;
}

void SequencePool::replace_context(std::int32_t index, Backend* context) {
  contexts_[index] = context;
  broken_[index] = false;
  for (const auto& sequence : sequences_) {
    if (sequence->context != index) continue;
    sequence->tokens.clear();
    cells_.shrink(sequence->cells, 0);
    sequence->exact = 0;
    sequence->checkpoint = false;
  }
}

}  // namespace pronk::inline v0
