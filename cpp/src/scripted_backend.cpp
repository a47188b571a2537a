#include "scripted_backend.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "pronk/error.h"

namespace pronk::inline v0 {

using testing::FaultKind;

namespace {

constexpr std::int32_t kMaxSequences = 256;  // of llama.cpp
constexpr std::array kStatusNames = {"ok",        "no_slot", "aborted", "invalid_batch",
                                     "no_memory", "failed"};

BackendOptions completed(BackendOptions options) {
  const auto require = [](bool good, const char* what, std::int32_t got, const char* expected) {
    if (!good) {
      throw InvalidArgumentError(std::string(what) + ": got " + std::to_string(got) +
                                 ", expected " + expected);
    }
  };
  require(options.n_seq >= 1 && options.n_seq <= kMaxSequences, "n_seq", options.n_seq, "1 to 256");
  require(options.n_batch >= 1, "n_batch", options.n_batch, "1 or more");
  require(options.n_outputs >= 1, "n_outputs", options.n_outputs, "1 or more");
  const std::int64_t separate = std::int64_t{options.n_ctx_seq} * options.n_seq;
  if (options.kv_unified && options.n_ctx_total > 0) {
    // Any sequence may take all of it.
    options.n_ctx_seq = options.n_ctx_total;
  } else {
    require(options.n_ctx_seq >= 1 && separate <= std::numeric_limits<std::int32_t>::max(),
            "n_ctx_seq", options.n_ctx_seq, "1 or more, and what fits an int32 over all sequences");
    options.n_ctx_total = static_cast<std::int32_t>(separate);
    if (options.kv_unified) options.n_ctx_seq = options.n_ctx_total;
  }
  return options;
}

DecodeStatus status_of(FaultKind kind) {
  switch (kind) {
    case FaultKind::kNoSlot:
      return DecodeStatus::kNoSlot;
    case FaultKind::kAborted:
      return DecodeStatus::kAborted;
    case FaultKind::kInvalidBatch:
      return DecodeStatus::kInvalidBatch;
    case FaultKind::kNoMemory:
      return DecodeStatus::kNoMemory;
    case FaultKind::kFailed:
      return DecodeStatus::kFailed;
    default:
      return DecodeStatus::kOk;
  }
}

bool spoils_logits(FaultKind kind) {
  return kind == FaultKind::kNanLogits || kind == FaultKind::kImpossibleLogits;
}

}  // namespace

/// Finds a second thread inside the backend.
class ScriptedBackend::OneThread {
 public:
  explicit OneThread(const ScriptedBackend& backend) : backend_(backend) {
    if (backend_.in_use_.exchange(true)) {
      backend_.violate("context: got calls from two threads at once, expected one at a time");
    }
  }
  ~OneThread() { backend_.in_use_.store(false); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const ScriptedBackend& backend_;
};

ScriptedBackend::ScriptedBackend(std::shared_ptr<const ScriptedLanguage> language,
                                 std::shared_ptr<ScriptedControl> control,
                                 const BackendOptions& options)
    : language_(std::move(language)),
      control_(std::move(control)),
      options_(completed(options)),
      memory_(language_->memory_kind(), language_->n_swa(), options_),
      number_(control_->enter(*this)) {}

ScriptedBackend::~ScriptedBackend() { control_->leave(*this); }

void ScriptedBackend::violate(const std::string& what) const {
  control_->add_violation(what);
  throw std::logic_error(what);
}

template <class Use>
auto ScriptedBackend::with_memory(Use&& use) const {
  std::string violation;
  try {
    const std::lock_guard lock(memory_mutex_);
    return use(memory_);
  } catch (const std::logic_error& error) {
    violation = error.what();
  }
  violate(violation);
}

void ScriptedBackend::check_batch(std::span<const BatchItem> batch) const {
  if (batch.size() > static_cast<std::size_t>(options_.n_batch)) {
    violate("decode: got " + std::to_string(batch.size()) +
            " items, expected at most n_batch=" + std::to_string(options_.n_batch));
  }
  const auto outputs =
      std::count_if(batch.begin(), batch.end(), [](auto& item) { return item.output; });
  if (outputs > options_.n_outputs) {
    violate("decode: got " + std::to_string(outputs) +
            " outputs, expected at most n_outputs=" + std::to_string(options_.n_outputs));
  }
}

DecodeStatus ScriptedBackend::apply(std::span<const BatchItem> batch, bool aborted,
                                    const testing::Fault* fault, std::size_t& applied) {
  const std::lock_guard lock(memory_mutex_);
  DecodeStatus status = memory_.check(batch, n_vocab());
  if (status != DecodeStatus::kOk) return status;
  std::size_t end = batch.size();
  if (aborted) {
    status = DecodeStatus::kAborted;
    end = 0;
  } else if (fault != nullptr) {
    status = throws(fault->kind) ? DecodeStatus::kFailed : status_of(fault->kind);
    end = std::min(end, static_cast<std::size_t>(fault->applied));
  }
  for (applied = 0; applied < end; ++applied) {
    const BatchItem& item = batch[applied];
    memory_.apply(item);
    if (status == DecodeStatus::kOk) add_row(item);
  }
  const bool in_the_middle = status != DecodeStatus::kOk && status != DecodeStatus::kNoSlot &&
                             status != DecodeStatus::kInvalidBatch;
  if (in_the_middle) memory_.fail(batch.subspan(applied));
  return status;
}

void ScriptedBackend::add_row(const BatchItem& item) {
  if (!item.output) {
    row_of_.push_back(-1);
    return;
  }
  const std::size_t start = rows_.size();
  const auto width = static_cast<std::size_t>(n_vocab());
  row_of_.push_back(static_cast<std::int32_t>(start / width));
  rows_.resize(start + width);
  language_->fill_logits(memory_.view(item.seq, item.pos), std::span(rows_).subspan(start));
}

DecodeStatus ScriptedBackend::decode(std::span<const BatchItem> batch) {
  const OneThread guard(*this);
  check_batch(batch);
  row_of_.clear();
  rows_.clear();
  const auto decode = control_->begin_decode(number_, batch);
  const testing::Fault* fault = nullptr;
  for (const auto& due : decode.faults) {
    if (fault == nullptr && !spoils_logits(due.kind)) fault = &due;
  }
  std::size_t applied = 0;
  const DecodeStatus status = apply(batch, decode.aborted, fault, applied);
  for (const auto& due : decode.faults) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    if (due.kind == FaultKind::kNanLogits) std::ranges::fill(rows_, std::nanf(""));
    if (due.kind == FaultKind::kImpossibleLogits) std::ranges::fill(rows_, -kInfinity);
  }
  const bool thrown = status == DecodeStatus::kFailed && fault != nullptr && throws(fault->kind);
  control_->end_decode(number_, decode, batch, applied,
                       rows_.size() / static_cast<std::size_t>(n_vocab()),
                       thrown ? "exception" : kStatusNames[static_cast<std::size_t>(status)]);
  if (thrown) throw_fault(fault->kind, "decode");
  return status;
}

std::span<const float> ScriptedBackend::logits(std::int32_t index) {
  const OneThread guard(*this);
  if (index < 0 || static_cast<std::size_t>(index) >= row_of_.size()) {
    violate("logits: got item " + std::to_string(index) + ", expected one of the " +
            std::to_string(row_of_.size()) + " of the last decode, none if it failed");
  }
  const std::int32_t row = row_of_[static_cast<std::size_t>(index)];
  if (row < 0) return {};
  const auto width = static_cast<std::size_t>(n_vocab());
  return std::span(rows_).subspan(static_cast<std::size_t>(row) * width, width);
}

bool ScriptedBackend::seq_remove(std::int32_t seq, std::int32_t p0, std::int32_t p1) {
  const OneThread guard(*this);
  if (!control_->on_seq_remove()) return false;
  return with_memory([&](ScriptedMemory& memory) { return memory.remove(seq, p0, p1); });
}

void ScriptedBackend::seq_copy(std::int32_t from, std::int32_t to, std::int32_t p0,
                               std::int32_t p1) {
  const OneThread guard(*this);
  control_->on_seq_copy();
  with_memory([&](ScriptedMemory& memory) { memory.copy(from, to, p0, p1); });
}

std::int32_t ScriptedBackend::seq_pos_min(std::int32_t seq) const {
  const OneThread guard(*this);
  return with_memory([&](const ScriptedMemory& memory) { return memory.pos_min(seq); });
}

std::int32_t ScriptedBackend::seq_pos_max(std::int32_t seq) const {
  const OneThread guard(*this);
  return with_memory([&](const ScriptedMemory& memory) { return memory.pos_max(seq); });
}

void ScriptedBackend::abort(bool on) noexcept { control_->set_abort(number_, on); }

std::vector<std::vector<Token>> ScriptedBackend::sequences() const {
  const std::lock_guard lock(memory_mutex_);
  std::vector<std::vector<Token>> result;
  for (std::int32_t seq = 0; seq < options_.n_seq; ++seq) result.push_back(memory_.tokens(seq));
  return result;
}

std::int64_t ScriptedBackend::cells_used() const {
  const std::lock_guard lock(memory_mutex_);
  return memory_.cells_used();
}

}  // namespace pronk::inline v0
