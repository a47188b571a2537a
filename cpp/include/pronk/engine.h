// A loaded model: weights, vocabulary, metadata. Immutable and safe to use from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pronk/api.h"
#include "pronk/chat.h"
#include "pronk/memory.h"
#include "pronk/params.h"

namespace pronk::inline v0 {

class EngineImpl;
struct PoolOptions;

/// How a model is loaded.
struct LoadOptions {
  std::optional<std::int32_t>
      n_gpu_layers;        ///< layers on the GPU, -1 for all; none is "auto": all if there is a GPU
  bool use_mmap = true;    ///< map the file instead of reading it
  bool use_mlock = false;  ///< keep the weights in RAM
  bool check_tensors = false;  ///< validate the tensor data while loading: slower
  bool vocab_only = false;     ///< tokenize only
  /// Called on the loading thread with the fraction done, 0 to 1. Returning false cancels the load
  /// (GenerationCancelled is not used for it: load() throws ModelLoadError).
  std::function<bool(float)> progress;
};

/// Something that computes.
struct Device {
  std::string name;                ///< "CPU", "CUDA0", "Metal"
  std::string description;         ///< as the driver reports it
  std::string kind;                ///< "cpu", "gpu", "igpu", "accel"
  std::uint64_t memory_total = 0;  ///< bytes
  std::uint64_t memory_free = 0;   ///< bytes
};

/// What the memory of a model allows: which prefixes can be reused and how.
enum class MemoryKind : int { kNone = 0, kPlain, kSlidingWindow, kRecurrent, kHybrid };

/// What a model says of itself.
struct ModelInfo {
  std::string path;
  std::string architecture;      ///< general.architecture
  std::string description;       ///< architecture, size and quantisation in words
  std::uint64_t size_bytes = 0;  ///< of all tensors
  std::uint64_t n_params = 0;
  std::int32_t n_vocab = 0;       ///< token ids are in [0, n_vocab)
  std::int32_t n_ctx_train = 0;   ///< tokens of context that it was trained on
  std::int32_t n_embd = 0;        ///< width
  std::int32_t n_layer = 0;       ///< layers in all
  std::int32_t n_head = 0;        ///< attention heads
  std::int32_t n_head_kv = 0;     ///< key/value heads
  std::int32_t n_gpu_layers = 0;  ///< really placed on a GPU
  std::int32_t n_swa = 0;         ///< sliding window in tokens, 0 for none
  MemoryKind memory_kind = MemoryKind::kPlain;
  Token bos = -1, eos = -1, eot = -1;           ///< -1 where the vocabulary has none
  bool add_bos = false;                         ///< prompts begin with BOS
  bool has_encoder = false;                     ///< such models are refused by a pool
  std::string chat_template;                    ///< empty where the model has none
  std::map<std::string, std::string> metadata;  ///< all GGUF key/value pairs, as text
};

/// A loaded model, shared by its schedulers: they keep it alive. All functions may be called from
/// any thread, at the same time too.
class PRONK_API InferenceEngine : public std::enable_shared_from_this<InferenceEngine> {
 public:
  /// Loads a GGUF file, of a model in parts the first. Blocks until done. Throws ModelLoadError
  /// (the file cannot be opened or is no usable model, or `progress` cancelled),
  /// InvalidArgumentError (layers for a GPU that is not there: the message says why),
  /// InsufficientMemoryError.
  static std::shared_ptr<InferenceEngine> load(const std::string& path,
                                               const LoadOptions& options = {});

  /// For pronk itself.
  explicit InferenceEngine(std::shared_ptr<EngineImpl> impl);
  ~InferenceEngine();
  InferenceEngine(const InferenceEngine&) = delete;
  InferenceEngine& operator=(const InferenceEngine&) = delete;

  /// Valid as long as the engine.
  const ModelInfo& info() const noexcept;
  /// Devices that hold layers of this model.
  std::vector<Device> devices() const;

  /// What a pool of these options would take, before anything of it is made. max_concurrent and
  /// n_ctx may be kAuto: the estimate says what would be chosen. Takes some ten milliseconds, more
  /// where something is to be chosen. Throws InvalidArgumentError, BackendError (the model file
  /// cannot be read again), InsufficientMemoryError (too little even for the estimate).
  MemoryEstimate estimate_memory(std::int32_t max_concurrent, const PoolOptions& options) const;

  /// UTF-8 text to token ids. `add_special` adds BOS/EOS as the model wants them, `parse_special`
  /// reads control tokens out of the text (off: their spelling stays text). Throws
  /// InvalidArgumentError on invalid UTF-8.
  std::vector<Token> tokenize(std::string_view text, bool add_special = true,
                              bool parse_special = false) const;

  /// Token ids to bytes, which need not be whole UTF-8. `special` spells out control tokens.
  /// Throws InvalidArgumentError on an id outside [0, n_vocab).
  std::string detokenize(const std::vector<Token>& tokens, bool special = false) const;

  /// The prompt of a chat, as text and as tokens; see InferencePermit::chat(). What looks like a
  /// control token in a message stays text in the tokens, which the text does not show.
  std::string render_chat(std::string_view messages, const ChatParams& params = {}) const;
  std::vector<Token> tokenize_chat(std::string_view messages, const ChatParams& params = {}) const;

  /// Whether the token ends a generation. False for an id that there is not.
  bool is_eog(Token token) const;

  /// For pronk itself.
  EngineImpl& impl() const noexcept { return *impl_; }

 private:
  std::shared_ptr<EngineImpl> impl_;
};

/// All devices that this build can use, the CPU last. Starts the drivers at its first call. From
/// any thread.
PRONK_API std::vector<Device> devices();

}  // namespace pronk::inline v0
