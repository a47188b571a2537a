// Behind InferenceEngine: a llama.cpp model or a scripted one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend.h"
#include "context_memory.h"
#include "pronk/engine.h"

namespace pronk::inline v0 {

/// One context to be created. Everything is already checked against the model by the pool.
struct BackendOptions {
  std::int32_t n_seq = 1;
  std::int32_t n_ctx_seq =
      0;  ///< tokens guaranteed to each of the first n_seq_guaranteed sequences
  std::int32_t n_ctx_total = 0;  ///< tokens in all; unified KV only, else n_ctx_seq x n_seq
  std::int32_t n_batch = 512;
  std::int32_t n_outputs = 1;  ///< most logits rows of one decode
  bool kv_unified = true;
  std::int32_t n_threads = 1;
  std::string flash_attention = "auto";
  std::string type_k = "f16", type_v = "f16";
};

/// Compute threads shared by all contexts of a pool: no two of them may decode at the same time.
class ComputeThreads {
 public:
  virtual ~ComputeThreads() = default;
};

/// What is free of a device.
struct FreeMemory {
  std::string device;  ///< as in DeviceMemory
  bool gpu = false;
  std::uint64_t bytes = 0;
  std::string limit;  ///< what bounds it, in words: "of main memory"
};

struct FreeMemories {
  std::vector<FreeMemory> devices;             ///< those of which it is known
  std::optional<std::uint64_t> address_space;  ///< bytes left by `ulimit -v`; none without a limit
};

class ChatTemplates;
class GrammarVocabulary;

class EngineImpl {
 public:
  virtual ~EngineImpl() = default;
  virtual const ModelInfo& info() const noexcept = 0;
  virtual std::vector<Device> devices() const = 0;
  virtual std::vector<Token> tokenize(std::string_view text, bool add_special,
                                      bool parse_special) const = 0;
  /// Appends the bytes of one token, which is in range.
  virtual void append_piece(Token token, bool special, std::string& out) const = 0;
  /// The text of tokens that are in range: their pieces, without the space that some vocabularies
  /// put before a text.
  virtual std::string detokenize(const std::vector<Token>& tokens, bool special) const;
  virtual bool is_eog(Token token) const = 0;
  virtual const std::vector<Token>& eog_tokens() const = 0;

  /// May return null: the backend then needs none.
  virtual std::shared_ptr<ComputeThreads> make_threads(std::int32_t n_threads) = 0;
  /// Throws BackendError, InsufficientMemoryError, InvalidArgumentError.
  virtual std::unique_ptr<Backend> make_backend(const BackendOptions& options,
                                                std::shared_ptr<ComputeThreads> threads) = 0;

  /// What a context would take. Without devices where that is not known. Throws
  /// InvalidArgumentError, BackendError, InsufficientMemoryError.
  virtual ContextMemory context_memory(const BackendOptions& options) {
    (void)options;
    return {};
  }
  virtual FreeMemories free_memory() { return {}; }

  /// What chats and grammars share, made at the first use.
  std::mutex lazy_mutex;
  std::shared_ptr<ChatTemplates> chat_templates;                // guarded by lazy_mutex
  std::shared_ptr<const GrammarVocabulary> grammar_vocabulary;  // guarded by lazy_mutex
};

}  // namespace pronk::inline v0
