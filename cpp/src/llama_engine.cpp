#include "llama_engine.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "gguf_check.h"
#include "host_memory.h"
#include "llama.h"
#include "llama_asserts.h"
#include "llama_backend.h"
#include "llama_devices.h"
#include "llama_log.h"
#include "llama_memory.h"
#include "llama_model_info.h"
#include "llama_threads.h"
#include "llama_tokenizer.h"
#include "process.h"
#include "pronk/error.h"

namespace pronk::inline v0 {
namespace {

TensorLayout layout_of(std::uint32_t type) {
  if (type >= GGML_TYPE_COUNT) return {};
  const auto known = static_cast<ggml_type>(type);
  return {ggml_blck_size(known), ggml_type_size(known)};
}

/// All files of a model.
struct ModelFiles {
  GgufSummary first;
  std::uint64_t n_tensors = 0;
  std::uint64_t bytes = 0;

  void add(const std::string& path, const GgufSummary& file) {
    std::error_code unknown;
    const auto size = std::filesystem::file_size(path, unknown);
    if (!unknown) bytes += size;
    n_tensors += file.n_tensors;
  }
};

/// Checks a model's file, and where it is the first of several, the others too.
ModelFiles check_files(const std::string& path) {
  ModelFiles files;
  const GgufSummary& first = files.first = check_gguf(path, layout_of);
  files.add(path, first);
  if (first.split_count <= 1) return files;
  const auto index = static_cast<std::int32_t>(first.split_index);
  const auto count = static_cast<std::int32_t>(first.split_count);
  char prefix[4096];
  if (index != 0 || llama_split_prefix(prefix, sizeof(prefix), path.c_str(), index, count) <= 0) {
    throw ModelLoadError(path + ": got part " + std::to_string(index + 1) + " of " +
                         std::to_string(count) +
                         " of a model, expected the first part under its name "
                         "'...-00001-of-....gguf', pass that one");
  }
  for (std::int32_t i = 1; i < count; ++i) {
    char part[4096];
    llama_split_path(part, sizeof(part), prefix, i, count);
    files.add(part, check_gguf(part, layout_of));
  }
  return files;
}

/// Pages of a mapped file can be given up; what is read into memory has to fit, or the kernel ends
/// the process.
void check_memory(const std::string& path, const LoadOptions& options, std::uint64_t bytes) {
  if (options.vocab_only || (options.use_mmap && !options.use_mlock)) return;
  const auto available = available_host_memory();
  if (!available || bytes <= *available) return;
  throw InsufficientMemoryError(
      path + ": got a model of " + std::to_string(bytes / 1'000'000) +
          " MB, expected no more than the " + std::to_string(*available / 1'000'000) +
          " MB of memory available, map it (use_mmap without use_mlock) or use a smaller one",
      {bytes, *available, 0, 0});
}

/// Hands llama.cpp's progress on: a hundred times at most, and no exception through C.
class Progress {
 public:
  explicit Progress(const std::function<bool(float)>& callback) : callback_(callback) {}

  static bool report(float fraction, void* self) {
    return static_cast<Progress*>(self)->report(fraction);
  }

  bool report(float fraction) {
    const int percent = static_cast<int>(std::clamp(fraction, 0.0f, 1.0f) * 100);
    if (!callback_ || percent <= last_percent_) return true;
    last_percent_ = percent;
    try {
      cancelled_ = !callback_(std::clamp(fraction, 0.0f, 1.0f));
    } catch (...) {
      error_ = std::current_exception();
      cancelled_ = true;
    }
    return !cancelled_;
  }

  void check(const std::string& path) const {
    if (error_) std::rethrow_exception(error_);
    if (cancelled_) {
      throw ModelLoadError(
          path + ": the load was cancelled by its progress callback, return True to go on");
    }
  }

 private:
  const std::function<bool(float)>& callback_;
  int last_percent_ = -1;
  bool cancelled_ = false;
  std::exception_ptr error_;
};

/// The GPUs for a model; empty for none.
std::vector<ggml_backend_dev_t> choose_gpus(const LoadOptions& options) {
  const std::int32_t asked = options.n_gpu_layers.value_or(-1);
  if (asked < -1) {
    throw InvalidArgumentError("n_gpu_layers: got " + std::to_string(asked) +
                               ", expected -1 for all layers, or 0 and more");
  }
  if (asked == 0 || options.vocab_only) return {};
  std::vector<ggml_backend_dev_t> gpus = usable_gpus();
  if (gpus.empty() && options.n_gpu_layers) {
    throw InvalidArgumentError("n_gpu_layers: got " + std::to_string(asked) +
                               ", expected 0: " + no_gpu_reason());
  }
  return gpus;
}

llama_load_mode load_mode(const LoadOptions& options) {
  if (options.use_mlock)
    return options.use_mmap ? LLAMA_LOAD_MODE_MMAP_MLOCK : LLAMA_LOAD_MODE_MLOCK;
  // Automatic is mmap wherever the device can take it.
  return options.use_mmap ? LLAMA_LOAD_MODE_AUTO : LLAMA_LOAD_MODE_NONE;
}

/// What decides where the weights are. `gpus` ends with null: without this list llama.cpp uses a
/// GPU for prompts even with all layers on the CPU.
llama_model_params placement(std::optional<std::int32_t> n_gpu_layers,
                             std::vector<ggml_backend_dev_t>& gpus) {
  llama_model_params params = llama_model_default_params();
  gpus.push_back(nullptr);
  params.devices = gpus.data();
  params.n_gpu_layers = gpus.size() == 1 ? 0 : n_gpu_layers.value_or(-1);
  return params;
}

/// As a shared model, freed by the process that loaded it.
std::shared_ptr<llama_model> share(llama_model* model) {
  const ProcessBound process;
  return {model, [process](llama_model* loaded) {
            // A GPU's driver does not survive a fork; the child's copy of the weights goes with the
            // child.
            if (!process.forked()) llama_model_free(loaded);
          }};
}

/// The model without its weights, and without its vocabulary, which takes the time: what contexts
/// of it take is the same. Null where it cannot be loaded.
std::shared_ptr<llama_model> load_without_weights(const ModelInfo& info,
                                                  std::optional<std::int32_t> n_gpu_layers,
                                                  std::vector<ggml_backend_dev_t> gpus) {
  llama_model_params params = placement(n_gpu_layers, gpus);
  params.no_alloc = true;
  params.load_mode = LLAMA_LOAD_MODE_NONE;
  llama_model_kv_override overrides[3] = {};
  overrides[0].tag = LLAMA_KV_OVERRIDE_TYPE_STR;
  std::strcpy(overrides[0].key, "tokenizer.ggml.model");
  std::strcpy(overrides[0].val_str, "none");
  overrides[1].tag = LLAMA_KV_OVERRIDE_TYPE_INT;
  const std::string key = info.architecture + ".vocab_size";
  if (key.size() < sizeof(overrides[1].key)) {
    std::strcpy(overrides[1].key, key.c_str());
    overrides[1].val_i64 = info.n_vocab;
    params.kv_overrides = overrides;
  }
  const AssertsThrow guard;
  llama_model* model = llama_model_load_from_file(info.path.c_str(), params);
  return model != nullptr ? share(model) : nullptr;
}

std::shared_ptr<llama_model> load_model(const std::string& path, const LoadOptions& options,
                                        std::vector<ggml_backend_dev_t> gpus) {
  Progress progress(options.progress);
  llama_model_params params = placement(options.n_gpu_layers, gpus);
  params.load_mode = load_mode(options);
  params.check_tensors = options.check_tensors;
  params.vocab_only = options.vocab_only;
  params.progress_callback = &Progress::report;
  params.progress_callback_user_data = &progress;

  const LogCapture log;
  llama_model* model = nullptr;
  try {
    const AssertsThrow guard;
    model = llama_model_load_from_file(path.c_str(), params);
  } catch (const std::bad_alloc&) {
    throw InsufficientMemoryError(
        path +
        ": got too little memory to load the model, close other programs or use a "
        "smaller one");
  } catch (const std::exception& error) {
    throw ModelLoadError(path + ": llama.cpp failed with '" + error.what() +
                         "', expected a model that it can load");
  }
  if (model == nullptr) {
    progress.check(path);
    if (log.out_of_memory()) {
      const auto bytes = log.failed_bytes();
      throw InsufficientMemoryError(
          path + ": got too little memory" +
          (bytes ? " for " + std::to_string(*bytes) + " bytes" : std::string()) +
          " to load the model (" + log.reason() + "), lower n_gpu_layers or use a smaller model");
    }
    throw ModelLoadError(path + ": llama.cpp cannot load it (" + log.reason() +
                         "), expected a complete model of a kind that it knows, check the file");
  }
  std::shared_ptr<llama_model> result = share(model);
  progress.report(1.0f);
  progress.check(path);
  return result;
}

class LlamaEngine final : public EngineImpl {
 public:
  LlamaEngine(std::shared_ptr<llama_model> model, const std::string& path,
              std::vector<ggml_backend_dev_t> gpus, const LoadOptions& options,
              std::uint64_t n_tensors)
      : model_(std::move(model)),
        vocab_(llama_model_get_vocab(model_.get())),
        tokenizer_(vocab_, path),
        info_(read_model_info(model_.get(), path,
                              gpus.empty() ? 0 : options.n_gpu_layers.value_or(-1))),
        gpus_(std::move(gpus)),
        vocab_only_(options.vocab_only),
        memory_(
            [this, layers = options.n_gpu_layers] {
              return load_without_weights(info_, layers, gpus_);
            },
            n_tensors, options.use_mmap && !options.use_mlock) {
    for (Token token = 0; token < info_.n_vocab; ++token) {
      if (llama_vocab_is_eog(vocab_, token)) eog_.push_back(token);
    }
  }

  const ModelInfo& info() const noexcept override { return info_; }

  std::vector<Device> devices() const override {
    std::vector<Device> result;
    for (const ggml_backend_dev_t gpu : gpus_) result.push_back(describe_device(gpu));
    const ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (info_.n_gpu_layers <= info_.n_layer && cpu != nullptr)
      result.push_back(describe_device(cpu));
    return result;
  }

  std::vector<Token> tokenize(std::string_view text, bool add_special,
                              bool parse_special) const override {
    return tokenizer_.tokenize(text, add_special, parse_special);
  }
  void append_piece(Token token, bool special, std::string& out) const override {
    tokenizer_.append_piece(token, special, out);
  }
  std::string detokenize(const std::vector<Token>& tokens, bool special) const override {
    return tokenizer_.detokenize(tokens, special);
  }
  bool is_eog(Token token) const override {
    return std::binary_search(eog_.begin(), eog_.end(), token);
  }
  const std::vector<Token>& eog_tokens() const override { return eog_; }

  std::shared_ptr<ComputeThreads> make_threads(std::int32_t n_threads) override {
    return std::make_shared<LlamaThreads>(n_threads);
  }

  std::unique_ptr<Backend> make_backend(const BackendOptions& options,
                                        std::shared_ptr<ComputeThreads> threads) override {
    check_usable();
    auto pool = std::dynamic_pointer_cast<LlamaThreads>(std::move(threads));
    if (!pool) pool = std::make_shared<LlamaThreads>(options.n_threads);
    return make_llama_backend(model_, info_, options, std::move(pool));
  }

  ContextMemory context_memory(const BackendOptions& options) override {
    check_usable();
    return memory_.of_context(info_, options);
  }

  FreeMemories free_memory() override {
    check_usable();
    FreeMemories result;
    for (const ggml_backend_dev_t gpu : gpus_) {
      const Device device = describe_device(gpu);
      // Some drivers do not say.
      if (device.memory_total > 0)
        result.devices.push_back({device.name, true, device.memory_free, "of its memory"});
    }
    const HostMemory host = host_memory(memory_.mapped(info_));
    if (host.memory) result.devices.push_back({"CPU", false, *host.memory, host.memory_limit});
    result.address_space = host.address_space;
    return result;
  }

 private:
  void check_usable() const {
    process_.check("model");
    if (vocab_only_) {
      throw InvalidArgumentError(
          "engine: got a model loaded with vocab_only, expected its weights, load it without");
    }
  }

  const ProcessBound process_;
  const std::shared_ptr<llama_model> model_;
  const llama_vocab* const vocab_;
  const LlamaTokenizer tokenizer_;
  const ModelInfo info_;
  const std::vector<ggml_backend_dev_t> gpus_;
  const bool vocab_only_;
  LlamaMemory memory_;
  std::vector<Token> eog_;  // ascending
};

}  // namespace

std::shared_ptr<EngineImpl> load_llama_engine(const std::string& path, const LoadOptions& options) {
  init_llama();
  const ModelFiles files = check_files(path);
  const GgufSummary& file = files.first;
  if (!file.has_tokenizer) {
    throw ModelLoadError(path + ": got a '" + file.architecture +
                         "' file without a tokenizer, expected a language model with its "
                         "vocabulary, use another file");
  }
  if (files.n_tensors == 0 && !options.vocab_only) {
    throw ModelLoadError(
        path +
        ": got a file with a vocabulary but no weights, expected a whole model, load it with "
        "vocab_only to tokenize");
  }
  std::vector<ggml_backend_dev_t> gpus = choose_gpus(options);
  if (gpus.empty()) check_memory(path, options, files.bytes);
  std::shared_ptr<llama_model> model = load_model(path, options, gpus);
  return std::make_shared<LlamaEngine>(std::move(model), path, std::move(gpus), options,
                                       files.n_tensors);
}

}  // namespace pronk::inline v0
