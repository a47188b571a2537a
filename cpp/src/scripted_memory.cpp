#include "scripted_memory.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

namespace pronk::inline v0 {

namespace {

constexpr std::int32_t kEnd = std::numeric_limits<std::int32_t>::max();
// Stands for a state that a failed computation has spoilt: no text hashes like it.
constexpr Token kGarbage = -1;

std::int32_t from_start(std::int32_t p0) { return std::max(p0, 0); }
std::int32_t to_end(std::int32_t p1) { return p1 < 0 ? kEnd : p1; }

}  // namespace

ScriptedCells::ScriptedCells(std::int32_t n_seq, std::int32_t capacity, bool unified)
    : unified_(unified),
      capacity_(capacity),
      streams_(unified ? 1 : static_cast<std::size_t>(n_seq)),
      sequences_(static_cast<std::size_t>(n_seq)) {}

ScriptedCells::Stream& ScriptedCells::stream_of(std::int32_t seq) {
  return streams_[unified_ ? 0 : static_cast<std::size_t>(seq)];
}

const ScriptedCells::Stream& ScriptedCells::stream_of(std::int32_t seq) const {
  return streams_[unified_ ? 0 : static_cast<std::size_t>(seq)];
}

bool ScriptedCells::fits(std::span<const BatchItem> batch) const {
  std::vector<std::size_t> needed(streams_.size());
  for (const auto& item : batch) ++needed[unified_ ? 0 : static_cast<std::size_t>(item.seq)];
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const std::size_t used = streams_[i].cells.size() - streams_[i].free.size();
    if (used + needed[i] > static_cast<std::size_t>(capacity_)) return false;
  }
  return true;
}

void ScriptedCells::add(std::int32_t seq, ScriptedEntry entry) {
  Stream& stream = stream_of(seq);
  if (stream.free.empty()) {
    stream.free.push_back(stream.cells.size());
    stream.cells.emplace_back();
  }
  const std::size_t cell = stream.free.back();
  stream.free.pop_back();
  stream.cells[cell] = {entry, 1};
  auto& own = sequences_[static_cast<std::size_t>(seq)];
  const auto later = std::find_if(own.rbegin(), own.rend(), [&](std::size_t other) {
    return stream.cells[other].entry.pos <= entry.pos;
  });
  own.insert(later.base(), cell);
}

void ScriptedCells::remove(std::int32_t seq, std::int32_t p0, std::int32_t p1) {
  Stream& stream = stream_of(seq);
  std::erase_if(sequences_[static_cast<std::size_t>(seq)], [&](std::size_t index) {
    Cell& cell = stream.cells[index];
    if (cell.entry.pos < p0 || cell.entry.pos >= p1) return false;
    if (--cell.owners == 0) stream.free.push_back(index);
    return true;
  });
}

void ScriptedCells::copy(std::int32_t from, std::int32_t to, std::int32_t p0, std::int32_t p1) {
  if (from == to) return;
  if (!unified_) {
    remove(to, 0, kEnd);
    for (const auto& entry : entries(from, 0, kEnd)) add(to, entry);
    return;
  }
  // As in llama.cpp the destination is not cleared: what it held stays beside what it gets.
  Stream& stream = stream_of(from);
  auto& target = sequences_[static_cast<std::size_t>(to)];
  for (const std::size_t index : sequences_[static_cast<std::size_t>(from)]) {
    Cell& cell = stream.cells[index];
    if (cell.entry.pos < p0 || cell.entry.pos >= p1) continue;
    if (std::find(target.begin(), target.end(), index) != target.end()) continue;
    ++cell.owners;
    target.push_back(index);
  }
  std::stable_sort(target.begin(), target.end(), [&](std::size_t a, std::size_t b) {
    return stream.cells[a].entry.pos < stream.cells[b].entry.pos;
  });
}

std::int32_t ScriptedCells::pos_min(std::int32_t seq) const {
  const auto& cells = sequences_[static_cast<std::size_t>(seq)];
  return cells.empty() ? -1 : stream_of(seq).cells[cells.front()].entry.pos;
}

std::int32_t ScriptedCells::pos_max(std::int32_t seq) const {
  const auto& cells = sequences_[static_cast<std::size_t>(seq)];
  return cells.empty() ? -1 : stream_of(seq).cells[cells.back()].entry.pos;
}

std::vector<ScriptedEntry> ScriptedCells::entries(std::int32_t seq, std::int32_t p0,
                                                  std::int32_t p1) const {
  std::vector<ScriptedEntry> result;
  for (const std::size_t index : sequences_[static_cast<std::size_t>(seq)]) {
    const ScriptedEntry& entry = stream_of(seq).cells[index].entry;
    if (entry.pos >= p0 && entry.pos < p1) result.push_back(entry);
  }
  return result;
}

std::int64_t ScriptedCells::used() const {
  std::int64_t used = 0;
  for (const auto& stream : streams_) {
    used += static_cast<std::int64_t>(stream.cells.size() - stream.free.size());
  }
  return used;
}

ScriptedMemory::ScriptedMemory(MemoryKind kind, std::int32_t n_swa, const BackendOptions& options)
    : kind_(kind),
      n_swa_(n_swa),
      n_seq_(options.n_seq),
      n_ctx_seq_(options.n_ctx_seq),
      unified_(options.kv_unified),
      cells_(options.n_seq, options.kv_unified ? options.n_ctx_total : options.n_ctx_seq,
             options.kv_unified),
      window_(options.n_seq, kEnd, options.kv_unified),
      states_(static_cast<std::size_t>(options.n_seq)) {}

void ScriptedMemory::check_seq(const char* what, std::int32_t seq) const {
  if (seq < 0 || seq >= n_seq_) {
    throw std::logic_error(std::string(what) + ": got sequence " + std::to_string(seq) +
                           ", expected 0 to " + std::to_string(n_seq_ - 1));
  }
}

DecodeStatus ScriptedMemory::check(std::span<const BatchItem> batch, std::int32_t n_vocab) const {
  if (batch.empty()) return DecodeStatus::kInvalidBatch;
  std::vector<std::int32_t> next(static_cast<std::size_t>(n_seq_), -1);
  for (const auto& item : batch) {
    if (item.seq < 0 || item.seq >= n_seq_) return DecodeStatus::kInvalidBatch;
    if (item.token < 0 || item.token >= n_vocab) return DecodeStatus::kInvalidBatch;
    if (item.pos < 0) return DecodeStatus::kInvalidBatch;
    auto& expected = next[static_cast<std::size_t>(item.seq)];
    if (expected < 0) {
      // An empty sequence may start anywhere.
      const std::int32_t last = pos_max(item.seq);
      expected = last < 0 ? item.pos : last + 1;
    }
    if (item.pos != expected) return DecodeStatus::kInvalidBatch;
    ++expected;
  }
  return has_cells() && !cells_.fits(batch) ? DecodeStatus::kNoSlot : DecodeStatus::kOk;
}

void ScriptedMemory::apply(const BatchItem& item) {
  const ScriptedEntry entry{item.pos, item.token};
  if (has_cells()) cells_.add(item.seq, entry);
  if (has_window()) {
    // llama.cpp keeps what left the window until it needs the room: the soonest is the hardest
    // case.
    window_.remove(item.seq, 0, item.pos - n_swa_ + 1);
    window_.add(item.seq, entry);
  }
  if (has_state()) states_[static_cast<std::size_t>(item.seq)].push_back(entry);
}

void ScriptedMemory::fail(std::span<const BatchItem> rest) {
  // llama.cpp takes the failed positions back by removing them; a state cannot forget, so it stays
  // advanced and wrong.
  std::vector<std::int32_t> first(static_cast<std::size_t>(n_seq_), -1);
  for (const auto& item : rest) {
    auto& pos = first[static_cast<std::size_t>(item.seq)];
    if (pos < 0) pos = item.pos;
    apply({kGarbage, item.pos, item.seq, false});
  }
  for (std::int32_t seq = 0; seq < n_seq_; ++seq) {
    if (first[static_cast<std::size_t>(seq)] >= 0) {
      remove(seq, first[static_cast<std::size_t>(seq)], -1);
    }
  }
}

ScriptedView ScriptedMemory::view(std::int32_t seq, std::int32_t pos) const {
  ScriptedView view;
  const auto& state = states_[static_cast<std::size_t>(seq)];
  view.first = has_cells() ? cells_.entries(seq, 0, pos + 1) : state;
  if (has_window()) view.second = window_.entries(seq, pos - n_swa_ + 1, pos + 1);
  if (kind_ == MemoryKind::kHybrid) view.second = state;
  return view;
}

bool ScriptedMemory::remove(std::int32_t seq, std::int32_t p0, std::int32_t p1) {
  check_seq("seq_remove", seq);
  p0 = from_start(p0);
  p1 = to_end(p1);
  if (has_state()) {
    const std::int32_t pos = state_pos(seq);
    if (p0 > 0 && p0 <= pos && p1 > pos) return false;
    if (p0 == 0 && p1 > pos) states_[static_cast<std::size_t>(seq)].clear();
  }
  if (has_cells()) cells_.remove(seq, p0, p1);
  if (has_window()) window_.remove(seq, p0, p1);
  return true;
}

void ScriptedMemory::copy(std::int32_t from, std::int32_t to, std::int32_t p0, std::int32_t p1) {
  check_seq("seq_copy", from);
  check_seq("seq_copy", to);
  if (has_cells() && !unified_ && from != to && (p0 > 0 || (p1 >= 0 && p1 < n_ctx_seq_))) {
    throw std::logic_error("seq_copy: got positions " + std::to_string(p0) + " to " +
                           std::to_string(p1) +
                           ", expected the whole sequence: split streams copy nothing less");
  }
  p0 = from_start(p0);
  p1 = to_end(p1);
  if (has_cells()) cells_.copy(from, to, p0, p1);
  if (has_window()) window_.copy(from, to, p0, p1);
  // A state is copied whole, whatever the range.
  if (has_state()) {
    states_[static_cast<std::size_t>(to)] = states_[static_cast<std::size_t>(from)];
  }
}

std::int32_t ScriptedMemory::state_pos(std::int32_t seq) const {
  const auto& state = states_[static_cast<std::size_t>(seq)];
  return state.empty() ? -1 : state.back().pos;
}

std::int32_t ScriptedMemory::pos_min(std::int32_t seq) const {
  check_seq("seq_pos_min", seq);
  if (has_window()) return window_.pos_min(seq);
  if (!has_state()) return cells_.pos_min(seq);
  return has_cells() ? std::max(cells_.pos_min(seq), state_pos(seq)) : state_pos(seq);
}

std::int32_t ScriptedMemory::pos_max(std::int32_t seq) const {
  check_seq("seq_pos_max", seq);
  if (has_window()) return window_.pos_max(seq);
  if (!has_state()) return cells_.pos_max(seq);
  return has_cells() ? std::min(cells_.pos_max(seq), state_pos(seq)) : state_pos(seq);
}

std::vector<Token> ScriptedMemory::tokens(std::int32_t seq) const {
  std::vector<Token> tokens;
  const auto all =
      has_cells() ? cells_.entries(seq, 0, kEnd) : states_[static_cast<std::size_t>(seq)];
  for (const auto& entry : all) tokens.push_back(entry.token);
  return tokens;
}

std::int64_t ScriptedMemory::cells_used() const {
  if (has_cells()) return cells_.used();
  return std::count_if(states_.begin(), states_.end(),
                       [](const auto& state) { return !state.empty(); });
}

}  // namespace pronk::inline v0
