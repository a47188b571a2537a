// Writes small GGUF files for the tests, sound ones and broken ones.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gguf {

/// A file that is removed at the end of its scope.
class TempFile {
 public:
  explicit TempFile(std::string_view bytes) {
    std::random_device random;
    path_ = (std::filesystem::temp_directory_path() /
             ("pronk-test-" + std::to_string(random()) + ".gguf"))
                .string();
    write(bytes);
  }
  ~TempFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  void write(std::string_view bytes) const {
    std::ofstream(path_, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Builds the bytes of a file. Whatever is not given a value takes a sound one.
class Builder {
 public:
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;

  void number(const std::string& key, std::uint32_t value) { add(key, 4, raw(value)); }
  void number16(const std::string& key, std::uint16_t value) { add(key, 2, raw(value)); }
  void real(const std::string& key, float value) { add(key, 6, raw(value)); }
  void boolean(const std::string& key, bool value) {
    add(key, 7, raw(static_cast<std::uint8_t>(value)));
  }
  void text(const std::string& key, std::string_view value) { add(key, 8, string(value)); }
  void texts(const std::string& key, const std::vector<std::string>& values) {
    std::string body = raw(std::uint32_t{8}) + raw(static_cast<std::uint64_t>(values.size()));
    for (const std::string& value : values) body += string(value);
    add(key, 9, body);
  }
  void integers(const std::string& key, const std::vector<std::int32_t>& values) {
    std::string body = raw(std::uint32_t{5}) + raw(static_cast<std::uint64_t>(values.size()));
    for (const std::int32_t value : values) body += raw(value);
    add(key, 9, body);
  }
  /// A pair of any type, sound or not.
  void add(const std::string& key, std::uint32_t type, std::string_view value) {
    pairs_ += string(key) + raw(type) + std::string(value);
    ++n_pairs_;
  }

  /// A tensor of 32-bit floats.
  void tensor(const std::string& name, const std::vector<std::uint64_t>& dims,
              const std::vector<float>& values) {
    std::string data(values.size() * sizeof(float), '\0');
    std::memcpy(data.data(), values.data(), data.size());
    tensor(name, dims, 0, data_.size(), data);
  }
  void tensor(const std::string& name, const std::vector<std::uint64_t>& dims, std::uint32_t type,
              std::uint64_t offset, const std::string& data) {
    infos_ += string(name) + raw(static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t dim : dims) infos_ += raw(dim);
    infos_ += raw(type) + raw(offset);
    data_ += data;
    pad(data_);
    ++n_tensors_;
  }
  std::uint64_t data_size() const { return data_.size(); }

  std::string bytes() const {
    std::string file = "GGUF" + raw(version) + raw(n_tensors_) + raw(n_pairs_) + pairs_ + infos_;
    if (n_tensors_ > 0) pad(file);
    return file + data_;
  }

  template <typename T>
  static std::string raw(T value) {
    std::string bytes(sizeof(value), '\0');
    std::memcpy(bytes.data(), &value, sizeof(value));
    return bytes;
  }
  static std::string string(std::string_view text) {
    return raw(static_cast<std::uint64_t>(text.size())) + std::string(text);
  }

 private:
  void pad(std::string& bytes) const {
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
  }

  std::string pairs_, infos_, data_;
  std::uint64_t n_pairs_ = 0, n_tensors_ = 0;
};

/// The character that byte-level BPE vocabularies write for a byte, as UTF-8.
inline std::string byte_token(int byte) {
  const auto printable = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
  };
  int code = byte;
  if (!printable(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

/// What a test may change about the tiny model.
struct TinyModel {
  std::string pre_tokenizer = "default";  // split by std::regex
  bool weights = true;
  bool tokenizer = true;
  std::uint32_t n_layers = 1;
};

/// A llama with random weights: 258 tokens, of which the first 256 are the bytes, then BOS and EOS;
/// heads of 32.
inline Builder tiny_model(const TinyModel& options = {}) {
  constexpr std::uint64_t n_embd = 32, n_ff = 32, n_vocab = 258;
  Builder file;
  file.text("general.architecture", "llama");
  file.text("general.name", "tiny");
  file.number("llama.context_length", 1024);
  file.number("llama.embedding_length", n_embd);
  file.number("llama.block_count", options.n_layers);
  file.number("llama.feed_forward_length", n_ff);
  file.number("llama.attention.head_count", 1);
  file.number("llama.attention.head_count_kv", 1);
  file.number("llama.rope.dimension_count", n_embd);
  file.real("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  if (options.tokenizer) {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.push_back(byte_token(byte));
    tokens.insert(tokens.end(), {"<bos>", "<eos>"});
    std::vector<std::int32_t> types(n_vocab, 1);
    types[256] = types[257] = 3;
    file.text("tokenizer.ggml.model", "gpt2");
    file.text("tokenizer.ggml.pre", options.pre_tokenizer);
    file.texts("tokenizer.ggml.tokens", tokens);
    file.texts("tokenizer.ggml.merges", {});
    file.integers("tokenizer.ggml.token_type", types);
    file.number("tokenizer.ggml.bos_token_id", 256);
    file.number("tokenizer.ggml.eos_token_id", 257);
    file.boolean("tokenizer.ggml.add_bos_token", true);
  }
  if (!options.weights) return file;

  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, 0.3f);
  const auto matrix = [&](const std::string& name, std::uint64_t columns, std::uint64_t rows) {
    std::vector<float> values(columns * rows);
    for (float& value : values) value = normal(random);
    file.tensor(name, {columns, rows}, values);
  };
  const auto ones = [&](const std::string& name) {
    file.tensor(name, {n_embd}, std::vector<float>(n_embd, 1.0f));
  };
  matrix("token_embd.weight", n_embd, n_vocab);
  ones("output_norm.weight");
  matrix("output.weight", n_embd, n_vocab);
  for (std::uint32_t layer = 0; layer < options.n_layers; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    ones(prefix + "attn_norm.weight");
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
      matrix(prefix + name + ".weight", n_embd, n_embd);
    }
    ones(prefix + "ffn_norm.weight");
    matrix(prefix + "ffn_gate.weight", n_embd, n_ff);
    matrix(prefix + "ffn_down.weight", n_ff, n_embd);
    matrix(prefix + "ffn_up.weight", n_embd, n_ff);
  }
  return file;
}

}  // namespace gguf
