#include "llama_model_info.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "utf8.h"

namespace pronk::inline v0 {
namespace {

std::string to_utf8(const std::string& bytes) {
  std::string text;
  Utf8Decoder decoder;
  decoder.push(bytes, text);
  decoder.finish(text);
  return text;
}

/// Calls one of llama.cpp's getters of text: they return the full length, and fill what there is
/// room for.
template <typename Get>
std::string text_of(Get get) {
  std::string text(256, '\0');
  std::int32_t length = get(text.data(), text.size());
  if (length >= static_cast<std::int32_t>(text.size())) {
    text.assign(static_cast<std::size_t>(length) + 1, '\0');
    length = get(text.data(), text.size());
  }
  text.resize(static_cast<std::size_t>(std::max(length, 0)));
  return to_utf8(text);
}

MemoryKind memory_kind(const llama_model* model, const ModelInfo& info) {
  const auto causal = info.metadata.find(info.architecture + ".attention.causal");
  const bool encoder = causal != info.metadata.end() && causal->second == "false";
  if (llama_model_is_diffusion(model) || !llama_model_has_decoder(model) || encoder)
    return MemoryKind::kNone;
  if (llama_model_is_recurrent(model)) return MemoryKind::kRecurrent;
  if (llama_model_is_hybrid(model)) return MemoryKind::kHybrid;
  return info.n_swa > 0 ? MemoryKind::kSlidingWindow : MemoryKind::kPlain;
}

}  // namespace

ModelInfo read_model_info(const llama_model* model, const std::string& path,
                          std::int32_t n_gpu_layers) {
  ModelInfo info;
  info.path = path;
  const std::int32_t n_pairs = llama_model_meta_count(model);
  for (std::int32_t i = 0; i < n_pairs; ++i) {
    info.metadata.emplace(text_of([&](char* out, std::size_t size) {
                            return llama_model_meta_key_by_index(model, i, out, size);
                          }),
                          text_of([&](char* out, std::size_t size) {
                            return llama_model_meta_val_str_by_index(model, i, out, size);
                          }));
  }
  if (const auto arch = info.metadata.find("general.architecture"); arch != info.metadata.end()) {
    info.architecture = arch->second;
  }
  info.description =
      text_of([&](char* out, std::size_t size) { return llama_model_desc(model, out, size); });
  info.size_bytes = llama_model_size(model);
  info.n_params = llama_model_n_params(model);
  info.n_ctx_train = llama_model_n_ctx_train(model);
  info.n_embd = llama_model_n_embd(model);
  info.n_layer = llama_model_n_layer(model);
  info.n_head = info.n_layer > 0 ? llama_model_n_head(model) : 0;
  info.n_head_kv = info.n_layer > 0 ? llama_model_n_head_kv(model) : 0;
  info.n_swa = llama_model_n_swa(model);
  // The output layer counts as one.
  info.n_gpu_layers =
      n_gpu_layers < 0 ? info.n_layer + 1 : std::min(n_gpu_layers, info.n_layer + 1);
  info.has_encoder = llama_model_has_encoder(model);
  info.memory_kind = memory_kind(model, info);
  if (const char* chat = llama_model_chat_template(model, nullptr))
    info.chat_template = to_utf8(chat);

  const llama_vocab* vocab = llama_model_get_vocab(model);
  info.n_vocab = llama_vocab_n_tokens(vocab);
  info.bos = llama_vocab_bos(vocab);
  info.eos = llama_vocab_eos(vocab);
  info.eot = llama_vocab_eot(vocab);
  info.add_bos = llama_vocab_get_add_bos(vocab);
  return info;
}

std::optional<std::int64_t> model_number(const ModelInfo& info, const std::string& name) {
  const auto found = info.metadata.find(info.architecture + "." + name);
  if (found == info.metadata.end()) return std::nullopt;
  std::int64_t value = 0;
  const std::string& text = found->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

HeadSizes head_sizes(const ModelInfo& info) {
  const std::int64_t usual = info.n_head > 0 ? info.n_embd / info.n_head : 0;
  return {model_number(info, "attention.key_length").value_or(usual),
          model_number(info, "attention.value_length").value_or(usual)};
}

}  // namespace pronk::inline v0
