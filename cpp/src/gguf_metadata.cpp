#include "gguf_metadata.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "gguf_file.h"

namespace pronk::inline v0 {
namespace {

constexpr std::uint64_t kMaxKeyBytes = 65535;       // by the format's specification
constexpr std::uint64_t kMaxStringBytes = 1 << 30;  // what llama.cpp accepts
constexpr std::uint64_t kMaxElements = 1 << 30;     // likewise
constexpr std::uint64_t kKeptBytes = 64;
constexpr double kMaxSuffixBytes = 1 << 28;

/// Bytes of a scalar; 0 for strings, arrays and unknown types.
std::uint64_t width_of(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    default:
      return 0;
  }
}

double read_number(GgufFile& file, GgufType type, const char* what) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kBool:
      return file.value<std::uint8_t>(what);
    case GgufType::kInt8:
      return file.value<std::int8_t>(what);
    case GgufType::kUint16:
      return file.value<std::uint16_t>(what);
    case GgufType::kInt16:
      return file.value<std::int16_t>(what);
    case GgufType::kUint32:
      return file.value<std::uint32_t>(what);
    case GgufType::kInt32:
      return file.value<std::int32_t>(what);
    case GgufType::kFloat32:
      return file.value<float>(what);
    case GgufType::kUint64:
      return static_cast<double>(file.value<std::uint64_t>(what));
    case GgufType::kInt64:
      return static_cast<double>(file.value<std::int64_t>(what));
    default:
      return file.value<double>(what);
  }
}

std::string read_start_of_text(GgufFile& file, const char* what) {
  const auto length = file.value<std::uint64_t>(what);
  if (length > kMaxStringBytes) {
    file.fail("got a string of " + std::to_string(length) + " bytes, expected at most " +
              std::to_string(kMaxStringBytes) + ", the file is damaged");
  }
  if (length > file.remaining()) file.skip(length, what);
  std::string result(static_cast<std::size_t>(std::min(length, kKeptBytes)), '\0');
  for (char& byte : result) byte = file.value<char>(what);
  file.skip(length - result.size(), what);
  return result;
}

void read_vocabulary(GgufFile& file, std::uint64_t count, GgufVocabulary& vocabulary) {
  for (std::uint64_t i = 0; i < count; ++i) {
    if (!vocabulary.add(file.text(kMaxStringBytes, "a token of the vocabulary"))) {
      file.fail("got token " + std::to_string(i) +
                " of the vocabulary twice, expected each only once");
    }
  }
  vocabulary.finish();
}

void read_array(GgufFile& file, const std::string& key, GgufValue& value,
                GgufVocabulary& vocabulary) {
  value.element = file.value<GgufType>("the element type of an array");
  value.count = file.value<std::uint64_t>("the length of an array");
  const bool strings = value.element == GgufType::kString;
  const std::uint64_t width = strings ? sizeof(std::uint64_t) : width_of(value.element);
  if (width == 0) {
    file.fail("got element type " + std::to_string(static_cast<std::uint32_t>(value.element)) +
              " in array '" + key + "', expected a number, bool or string, the file is damaged");
  }
  if (value.count > kMaxElements || value.count > file.remaining() / width) {
    file.fail("got " + std::to_string(value.count) + " elements in array '" + key + "' with " +
              std::to_string(file.remaining()) +
              " bytes left, expected a whole GGUF file, fetch it again");
  }
  if (strings && key == "tokenizer.ggml.tokens") {
    read_vocabulary(file, value.count, vocabulary);
  } else if (strings) {
    for (std::uint64_t i = 0; i < value.count; ++i) {
      file.skip(file.value<std::uint64_t>("a string of an array"), "a string of an array");
    }
  } else if (value.count <= 1024 || key == "tokenizer.ggml.token_type") {
    // Other long ones are vocabulary scores and the like, of no interest here.
    for (std::uint64_t i = 0; i < value.count; ++i) {
      const double element = read_number(file, value.element, "an array");
      value.number = i == 0 ? element : std::max(value.number, element);
    }
  } else {
    file.skip(value.count * width, "an array");
  }
}

std::string show(double number) {
  if (number == std::floor(number) && std::abs(number) < 1e15) {
    return std::to_string(static_cast<std::int64_t>(number));
  }
  return std::to_string(number);
}

}  // namespace

GgufMetadata::GgufMetadata(GgufFile& file, std::uint64_t n_pairs) {
  for (std::uint64_t i = 0; i < n_pairs; ++i) {
    std::string key = file.text(kMaxKeyBytes, "a key");
    if (key.empty()) {
      file.fail("got an empty key for pair " + std::to_string(i) +
                ", expected a name, the file is damaged");
    }
    GgufValue value;
    value.type = file.value<GgufType>("the type of a value");
    if (value.type == GgufType::kArray) {
      read_array(file, key, value, vocabulary_);
    } else if (value.type == GgufType::kString) {
      value.text = read_start_of_text(file, "a string");
    } else if (width_of(value.type) != 0) {
      value.number = read_number(file, value.type, "a value");
    } else {
      file.fail("got type " + std::to_string(static_cast<std::uint32_t>(value.type)) +
                " for key '" + key + "', expected 0 to 12, the file is damaged");
    }
    if (const auto [where, fresh] = values_.emplace(std::move(key), std::move(value)); !fresh) {
      file.fail("got key '" + where->first + "' twice, expected it once, the file is damaged");
    }
  }
}

const GgufValue* GgufMetadata::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

std::optional<double> GgufMetadata::number(const std::string& key) const {
  const GgufValue* value = find(key);
  if (value == nullptr || value->type == GgufType::kString) return std::nullopt;
  if (value->type == GgufType::kArray && value->element == GgufType::kString) return std::nullopt;
  return value->number;
}

std::string GgufMetadata::text(const std::string& key) const {
  const GgufValue* value = find(key);
  return value == nullptr || value->type != GgufType::kString ? std::string() : value->text;
}

void check_gguf_values(const GgufFile& file, const GgufMetadata& metadata) {
  const std::string arch = metadata.text("general.architecture");
  const auto get = [&](const char* name) { return metadata.number(arch + "." + name); };
  const auto refuse = [&](const char* name, double got, const std::string& expected) {
    file.fail("got " + arch + "." + name + " = " + show(got) + ", expected " + expected +
              ", the file is damaged or of an unknown kind");
  };

  const std::optional<double> n_layers = get("block_count");
  if (n_layers && !(*n_layers >= 1 && *n_layers <= 512))
    refuse("block_count", *n_layers, "1 to 512");
  if (const auto n = get("nextn_predict_layers"); n && n_layers && *n > *n_layers) {
    refuse("nextn_predict_layers", *n, "at most block_count");
  }

  // llama.cpp itself forgives a dense Hunyuan its single expert.
  if (!arch.starts_with("hunyuan")) {
    const double n_experts = get("expert_count").value_or(0);
    const double n_used = get("expert_used_count").value_or(0);
    const double n_groups = get("expert_group_count").value_or(0);
    const double n_groups_used = get("expert_group_used_count").value_or(0);
    if (!(n_experts <= 1024)) refuse("expert_count", n_experts, "at most 1024");
    if (!(n_used <= n_experts) || (n_experts > 0 && !(n_used > 0))) {
      refuse("expert_used_count", n_used, "1 to expert_count, or 0 for a model without experts");
    }
    if (n_experts > 0 ? !(n_groups < n_experts) : n_groups != 0) {
      refuse("expert_group_count", n_groups, "less than expert_count");
    }
    if (n_groups > 1 &&
        (std::fmod(n_experts, n_groups) != 0 || !(n_groups_used > 0 && n_groups_used < n_groups))) {
      refuse("expert_group_used_count", n_groups_used,
             "1 to expert_group_count - 1, which divides expert_count");
    }
  }

  // A rotation of more elements than a head has.
  const double n_embd = get("embedding_length").value_or(0);
  const double n_heads = get("attention.head_count").value_or(0);
  if (n_embd > 0 && !(n_heads >= 0 && n_heads <= n_embd)) {
    refuse("attention.head_count", n_heads, "at most embedding_length");
  }
  const double usual_head = n_heads > 0 ? std::floor(n_embd / n_heads) : 0;
  for (const std::string suffix : {"", "_swa"}) {
    const std::string name = "rope.dimension_count" + suffix;
    const auto rotated = get(name.c_str());
    const double head = get(("attention.key_length" + suffix).c_str())
                            .value_or(get("attention.key_length").value_or(usual_head));
    if (rotated && head > 0 && !(*rotated <= head)) {
      refuse(name.c_str(), *rotated, "at most " + show(head) + ", the size of a head");
    }
    // With 0, ggml's rotation does not end; these do not rotate.
    const bool may_be_none = n_heads == 0 || arch.starts_with("kimi");
    if (rotated && (std::fmod(*rotated, 2) != 0 || (*rotated == 0 && !may_be_none)))
      refuse(name.c_str(), *rotated, "an even number from 2 on");
  }
  // Of positions in several dimensions, one at least has a part of the rotation.
  constexpr std::string_view several[] = {"qwen2vl", "paddleocr", "qwen3vl", "qwen3vlmoe",
                                          "qwen35",  "qwen35moe", "qwen4exp"};
  if (std::find(std::begin(several), std::end(several), arch) != std::end(several) &&
      !(get("rope.dimension_sections").value_or(0) > 0)) {
    refuse("rope.dimension_sections", 0, "the parts of the rotation");
  }
  if (const auto inner = get("ssm.inner_size"); inner && arch == "jamba" && *inner != 2 * n_embd) {
    refuse("ssm.inner_size", *inner, show(2 * n_embd) + ", twice embedding_length");
  }

  // A window that no layer has.
  const char* pattern = "attention.sliding_window_pattern";
  if (const GgufValue* value = metadata.find(arch + "." + pattern);
      value != nullptr && get("attention.sliding_window").value_or(0) > 0) {
    const bool array = value->type == GgufType::kArray;
    if (value->number == (array ? 0 : 1)) {
      refuse(pattern, value->number, "one that gives some layer the sliding window");
    }
  }

  // A vocabulary of words has no bytes, which are of type 6.
  if (metadata.text("tokenizer.ggml.model") == "bert" &&
      metadata.number("tokenizer.ggml.token_type").value_or(0) >= 6) {
    file.fail("got bytes in a vocabulary of words, expected text, convert the model again");
  }
  if (const int byte = metadata.vocabulary().byte_that_loops();
      byte >= 0 && metadata.text("tokenizer.ggml.model") == "rwkv") {
    file.fail("got no token for the byte " + std::to_string(byte) +
              ", with which another one begins, expected one, the vocabulary is damaged");
  }
  if (metadata.vocabulary().suffix_bytes() > kMaxSuffixBytes &&
      metadata.text("tokenizer.ggml.model") == "plamo2") {
    file.fail("got tokens too long for this tokenizer, expected words, the vocabulary is damaged");
  }

  for (const char* name : {"attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"}) {
    if (const auto epsilon = get(name); epsilon && !(*epsilon >= 0 && std::isfinite(*epsilon))) {
      refuse(name, *epsilon, "a small positive number");
    }
  }

  const std::string scaling = metadata.text(arch + ".rope.scaling.type");
  if (metadata.find(arch + ".rope.scaling.type") != nullptr) {
    constexpr std::string_view known[] = {"none", "linear", "yarn", "longrope"};
    if (std::find(std::begin(known), std::end(known), scaling) == std::end(known)) {
      file.fail(
          "got " + arch + ".rope.scaling.type '" + scaling +
          "', expected none, linear, yarn or longrope, the file is damaged or of an unknown kind");
    }
  }
}

}  // namespace pronk::inline v0
