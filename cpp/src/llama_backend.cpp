#include "llama_backend.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "llama.h"
#include "llama_asserts.h"
#include "llama_context_params.h"
#include "llama_devices.h"
#include "llama_log.h"
#include "llama_memory.h"
#include "process.h"
#include "pronk/error.h"

namespace pronk::inline v0 {
namespace {

/// llama_batch over arrays that are allocated once.
class Batch {
 public:
  explicit Batch(std::size_t capacity)
      : tokens_(capacity),
        positions_(capacity),
        n_seqs_(capacity, 1),
        seqs_(capacity),
        seq_pointers_(capacity),
        outputs_(capacity) {
    for (std::size_t i = 0; i < capacity; ++i) seq_pointers_[i] = &seqs_[i];
  }

  void assign(std::span<const BatchItem> items) {
    size_ = items.size();
    for (std::size_t i = 0; i < size_; ++i) {
      tokens_[i] = items[i].token;
      positions_[i] = items[i].pos;
      seqs_[i] = items[i].seq;
      outputs_[i] = items[i].output ? 1 : 0;
    }
  }
  void clear() { size_ = 0; }

  bool has_output(std::int32_t index) const {
    return index >= 0 && static_cast<std::size_t>(index) < size_ &&
           outputs_[static_cast<std::size_t>(index)] != 0;
  }

  llama_batch get() {
    return {static_cast<std::int32_t>(size_),
            tokens_.data(),
            nullptr,
            positions_.data(),
            n_seqs_.data(),
            seq_pointers_.data(),
            outputs_.data()};
  }

 private:
  std::size_t size_ = 0;
  std::vector<llama_token> tokens_;
  std::vector<llama_pos> positions_;
  std::vector<std::int32_t> n_seqs_;
  std::vector<llama_seq_id> seqs_;
  std::vector<llama_seq_id*> seq_pointers_;
  std::vector<std::int8_t> outputs_;
};

class LlamaBackend final : public Backend {
 public:
  LlamaBackend(std::shared_ptr<llama_model> model, const ModelInfo& info,
               const BackendOptions& options, std::shared_ptr<LlamaThreads> threads);
  ~LlamaBackend() override;

  std::int32_t n_seq() const noexcept override { return n_seq_; }
  std::int32_t n_ctx_seq() const noexcept override { return n_ctx_seq_; }
  std::int32_t n_ctx_total() const noexcept override { return n_ctx_total_; }
  std::int32_t n_batch() const noexcept override { return n_batch_; }
  std::int32_t n_vocab() const noexcept override { return n_vocab_; }
  std::vector<DeviceMemory> memory() const override { return memory_of(context_, kind_); }

  DecodeStatus decode(std::span<const BatchItem> batch) override;
  std::span<const float> logits(std::int32_t index) override;
  bool seq_remove(std::int32_t seq, std::int32_t p0, std::int32_t p1) override;
  void seq_copy(std::int32_t from, std::int32_t to, std::int32_t p0, std::int32_t p1) override;
  std::int32_t seq_pos_min(std::int32_t seq) const override;
  std::int32_t seq_pos_max(std::int32_t seq) const override;
  void set_threads(std::int32_t n_threads) override;
  void abort(bool on) noexcept override { abort_.store(on, std::memory_order_relaxed); }

 private:
  bool valid(std::span<const BatchItem> batch) const;
  bool valid_seq(std::int32_t seq) const { return seq >= 0 && seq < n_seq_; }
  void open(llama_context_params params);

  const ProcessBound process_;
  const std::shared_ptr<llama_model> model_;     // outlives the context
  const std::shared_ptr<LlamaThreads> threads_;  // likewise
  const std::int32_t n_seq_;
  const std::int32_t n_vocab_;
  const MemoryKind kind_;
  const bool whole_state_;  // sequences are copied as a whole or not at all
  const bool streams_;      // a KV cache per sequence
  const std::int32_t max_outputs_;
  std::int32_t n_ctx_seq_ = 0;
  std::int32_t n_ctx_total_ = 0;
  std::int32_t n_batch_ = 0;
  std::atomic<bool> abort_{false};
  llama_context* context_ = nullptr;
  llama_memory_t sequences_ = nullptr;
  Batch batch_;
};

LlamaBackend::LlamaBackend(std::shared_ptr<llama_model> model, const ModelInfo& info,
                           const BackendOptions& options, std::shared_ptr<LlamaThreads> threads)
    : model_(std::move(model)),
      threads_(std::move(threads)),
      n_seq_(options.n_seq),
      n_vocab_(info.n_vocab),
      kind_(info.memory_kind),
      whole_state_(info.memory_kind == MemoryKind::kRecurrent ||
                   info.memory_kind == MemoryKind::kHybrid),
      streams_(!options.kv_unified && options.n_seq > 1),
      max_outputs_(std::max(options.n_outputs, options.n_seq)),
      batch_(static_cast<std::size_t>(std::max(options.n_batch, 1))) {
  // ggml indexes the workers of a pool by the number that a context asks for.
  if (options.n_threads != threads_->n_threads()) {
    throw InvalidArgumentError("n_threads: got " + std::to_string(options.n_threads) +
                               ", expected the " + std::to_string(threads_->n_threads()) +
                               " of the pool's threads");
  }
  open(make_context_params(info, options));
}

void LlamaBackend::open(llama_context_params params) {
  params.abort_callback = [](void* flag) {
    return static_cast<const std::atomic<bool>*>(flag)->load(std::memory_order_relaxed);
  };
  params.abort_callback_data = &abort_;
  const LogCapture log;
  try {
    const AssertsThrow guard;
    context_ = llama_init_from_model(model_.get(), params);
  } catch (const std::bad_alloc&) {
    throw InsufficientMemoryError("context: got too little memory for n_ctx " +
                                  std::to_string(params.n_ctx) + ", lower n_ctx or max_concurrent");
  } catch (const std::exception& error) {
    throw BackendError(std::string("context: llama.cpp failed with '") + error.what() +
                       "', lower n_ctx or n_batch");
  }
  if (context_ == nullptr && log.out_of_memory()) {
    const auto bytes = log.failed_bytes();
    throw InsufficientMemoryError(
        "context: got too little memory" +
        (bytes ? " for " + std::to_string(*bytes) + " bytes" : std::string()) + " with n_ctx " +
        std::to_string(params.n_ctx) + " (" + log.reason() +
        "), lower n_ctx, n_batch or max_concurrent");
  }
  if (context_ == nullptr) {
    throw BackendError("context: llama.cpp made none with n_ctx " + std::to_string(params.n_ctx) +
                       " (" + log.reason() + "), change the options that it names");
  }
  sequences_ = llama_get_memory(context_);
  if (sequences_ == nullptr) {
    llama_free(context_);
    throw InvalidArgumentError(
        "engine: got a model without a memory of past tokens, expected a causal language model");
  }
  llama_attach_threadpool(context_, threads_->pool(), threads_->pool());
  n_ctx_total_ = static_cast<std::int32_t>(llama_n_ctx(context_));
  n_ctx_seq_ = static_cast<std::int32_t>(llama_n_ctx_seq(context_));
  n_batch_ = static_cast<std::int32_t>(llama_n_batch(context_));
}

LlamaBackend::~LlamaBackend() {
  // A GPU's driver does not survive a fork; the child's memory goes with the child.
  if (!process_.forked()) llama_free(context_);
}

void LlamaBackend::set_threads(std::int32_t n_threads) {
  // A graph may leave workers of the pool out, but not ask for more than there are.
  n_threads = std::clamp(n_threads, 1, threads_->n_threads());
  if (context_ != nullptr && n_threads != llama_n_threads(context_)) {
    llama_set_n_threads(context_, n_threads, n_threads);
  }
}

bool LlamaBackend::valid(std::span<const BatchItem> batch) const {
  if (batch.empty() || batch.size() > static_cast<std::size_t>(n_batch_)) return false;
  std::int32_t n_outputs = 0;
  for (const BatchItem& item : batch) {
    if (item.token < 0 || item.token >= n_vocab_ || item.pos < 0 || !valid_seq(item.seq))
      return false;
    n_outputs += item.output ? 1 : 0;
  }
  return n_outputs <= max_outputs_;
}

DecodeStatus LlamaBackend::decode(std::span<const BatchItem> batch) {
  batch_.clear();
  if (!valid(batch)) return DecodeStatus::kInvalidBatch;
  if (abort_.load(std::memory_order_relaxed)) return DecodeStatus::kAborted;
  batch_.assign(batch);
  DecodeStatus status = DecodeStatus::kFailed;
  const LogCapture log;
  try {
    const std::lock_guard lock(threads_->computing());
    const LogAsDebug quiet;
    switch (llama_decode(context_, batch_.get())) {
      case 0:
        return DecodeStatus::kOk;
      case 1:
        status = DecodeStatus::kNoSlot;
        break;
      case 2:
        status = DecodeStatus::kAborted;
        break;
      case -1:
        status = DecodeStatus::kInvalidBatch;
        break;
      case -2:
        status = DecodeStatus::kNoMemory;
        break;
      default:
        break;
    }
  } catch (const std::bad_alloc&) {
    status = DecodeStatus::kNoMemory;
  } catch (...) {
    status = DecodeStatus::kFailed;
  }
  batch_.clear();
  if (status != DecodeStatus::kAborted && status != DecodeStatus::kNoSlot) {
    log_warning("decode failed: " + log.reason());
  }
  return status;
}

std::span<const float> LlamaBackend::logits(std::int32_t index) {
  if (!batch_.has_output(index)) return {};
  try {
    const float* row = llama_get_logits_ith(context_, index);
    if (row != nullptr) return {row, static_cast<std::size_t>(n_vocab_)};
  } catch (...) {  // an empty row says it
  }
  return {};
}

bool LlamaBackend::seq_remove(std::int32_t seq, std::int32_t p0, std::int32_t p1) {
  if (!valid_seq(seq)) return false;
  if (p1 >= 0 && std::max(p0, 0) >= p1) return true;
  try {
    return llama_memory_seq_rm(sequences_, seq, std::max(p0, -1), std::max(p1, -1));
  } catch (...) {
    return false;
  }
}

void LlamaBackend::seq_copy(std::int32_t from, std::int32_t to, std::int32_t p0, std::int32_t p1) {
  if (!valid_seq(from) || !valid_seq(to)) {
    throw InvalidArgumentError("sequence: got a copy from " + std::to_string(from) + " to " +
                               std::to_string(to) + ", expected 0 to " +
                               std::to_string(n_seq_ - 1));
  }
  if (from == to) return;
  const std::int32_t end = llama_memory_seq_pos_max(sequences_, from) + 1;
  const std::int32_t last = p1 < 0 ? end : std::min(p1, end);
  const bool whole = p0 <= 0 && last == end;
  // A recurrent state is that after the last token, whatever range is asked for: a part of it would
  // be a wrong answer.
  if ((whole_state_ && !whole) || (streams_ && p0 > 0)) {
    throw InvalidArgumentError("sequence: got a copy of [" + std::to_string(p0) + ", " +
                               std::to_string(p1) + ") of " + std::to_string(end) +
                               " tokens, expected all of them in this kind of memory");
  }
  try {
    llama_memory_seq_rm(sequences_, to, -1, -1);
    const bool all = whole_state_ || streams_;
    llama_memory_seq_cp(sequences_, from, to, all ? -1 : std::max(p0, 0), all ? -1 : last);
    if (streams_ && !whole) llama_memory_seq_rm(sequences_, to, last, -1);
  } catch (const std::exception& error) {
    throw BackendError(std::string("sequence: llama.cpp failed to copy one (") + error.what() +
                       ")");
  }
}

std::int32_t LlamaBackend::seq_pos_min(std::int32_t seq) const {
  return valid_seq(seq) ? llama_memory_seq_pos_min(sequences_, seq) : -1;
}

std::int32_t LlamaBackend::seq_pos_max(std::int32_t seq) const {
  return valid_seq(seq) ? llama_memory_seq_pos_max(sequences_, seq) : -1;
}

}  // namespace

std::unique_ptr<Backend> make_llama_backend(std::shared_ptr<llama_model> model,
                                            const ModelInfo& info, const BackendOptions& options,
                                            std::shared_ptr<LlamaThreads> threads) {
  init_llama();
  return std::make_unique<LlamaBackend>(std::move(model), info, options, std::move(threads));
}

}  // namespace pronk::inline v0
