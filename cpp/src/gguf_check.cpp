#include "gguf_check.h"

#include <cstring>
#include <limits>
#include <unordered_set>
#include <utility>

#include "gguf_divisors.h"
#include "gguf_file.h"
#include "gguf_metadata.h"

namespace pronk::inline v0 {
namespace {

constexpr std::uint64_t kMinPairBytes = 8 + 1 + 4 + 1;    // key, type, value
constexpr std::uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;  // name, dimensions, type, offset
constexpr std::uint64_t kMaxNameBytes = 63;               // ggml keeps 64 with the NUL
constexpr std::uint32_t kMaxDims = 4;
constexpr std::uint64_t kMinAlignment = 32;
constexpr std::uint64_t kMaxElementsPerByte = 256;  // no type packs as many

void check_magic(GgufFile& file) {
  if (file.size() == 0) file.fail("got an empty file, expected a GGUF file, fetch it again");
  char magic[4] = {};
  for (std::size_t i = 0; i < sizeof(magic) && file.remaining() > 0; ++i)
    magic[i] = file.value<char>("the magic");
  if (std::memcmp(magic, "GGUF", sizeof(magic)) == 0) return;
  std::string seen;
  for (const char c : magic) {
    if (c >= ' ' && c <= '~') {
      seen += c;
    } else {
      constexpr char digits[] = "0123456789abcdef";
      const auto byte = static_cast<unsigned char>(c);
      seen += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
    }
  }
  file.fail("got a file that starts with '" + seen +
            "', expected a GGUF file ('GGUF'), convert the model to GGUF or check the download");
}

void check_version(GgufFile& file) {
  const auto version = file.value<std::uint32_t>("the version");
  if (version == 2 || version == 3) return;
  if (version != 0 && (version & 0xffff) == 0) {
    file.fail(
        "got a GGUF file of the other byte order, expected this machine's, convert it again here");
  }
  file.fail("got GGUF version " + std::to_string(version) + ", expected 2 or 3" +
            (version > 3 && version < 256 ? ", update pronk" : ", convert the model again"));
}

std::uint64_t read_count(GgufFile& file, const char* what, std::uint64_t min_bytes) {
  const auto count = file.value<std::uint64_t>(what);
  if (count > file.size() / min_bytes) {
    file.fail("got " + std::to_string(count) + " as " + what + " in a file of " +
              std::to_string(file.size()) +
              " bytes, expected a whole GGUF file, it is truncated or damaged, fetch it again");
  }
  return count;
}

std::uint64_t padded(std::uint64_t bytes, std::uint64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

std::uint64_t read_alignment(const GgufFile& file, const GgufMetadata& metadata) {
  const GgufValue* value = metadata.find("general.alignment");
  if (value == nullptr) return 32;
  // Converted only from the right type: the number of another may be none that an integer holds.
  const bool typed = value->type == GgufType::kUint32;
  const std::uint64_t alignment = typed ? static_cast<std::uint64_t>(value->number) : 0;
  // What is mapped is used where it lies, and ggml aborts on a tensor that is not aligned to 32.
  if (alignment < kMinAlignment || (alignment & (alignment - 1)) != 0) {
    file.fail(
        "got a general.alignment that is no power of two from 32 on of type uint32, expected 32, "
        "the file is damaged, or convert the model again");
  }
  return alignment;
}

/// Added to, multiplied with or moved over what is f32, and no matrix to multiply by: the CPU
/// aborts on other types. llama.cpp's converter writes them so.
bool is_operand(const std::string& name) {
  return !name.ends_with(".weight") || name.ends_with("_norm.weight") ||
         name.find(".ssm_conv1d") != std::string::npos ||
         name.find(".shortconv.conv.") != std::string::npos;
}

/// Whole numbers, of which llama.cpp knows tables only, and doubles: to multiply by them is a call
/// through a null pointer.
bool is_no_weight(std::uint32_t type, const std::string& name) {
  constexpr std::uint32_t kFirst = 24, kLast = 28;  // i8, i16, i32, i64, f64
  const bool table = name.find("tid2eid") != std::string::npos || name == "d2t";
  return type >= kFirst && type <= kLast && !table;
}

/// Bytes of the tensor whose dimensions and type come next.
std::uint64_t read_tensor_bytes(GgufFile& file, const std::string& name, TensorLayoutOf layout_of) {
  const auto n_dims = file.value<std::uint32_t>("a tensor's number of dimensions");
  if (n_dims > kMaxDims) {
    file.fail("got " + std::to_string(n_dims) + " dimensions for tensor '" + name +
              "', expected at most 4, "
              "the file is damaged");
  }
  const std::uint64_t most =
      file.size() > std::numeric_limits<std::uint64_t>::max() / kMaxElementsPerByte
          ? std::numeric_limits<std::uint64_t>::max()
          : file.size() * kMaxElementsPerByte;
  std::uint64_t row = 1;
  std::uint64_t elements = 1;
  for (std::uint32_t i = 0; i < n_dims; ++i) {
    const auto dim = file.value<std::uint64_t>("a tensor's dimension");
    if (dim == 0 || dim > most / elements) {
      file.fail("got dimension " + std::to_string(dim) + " for tensor '" + name +
                "', expected at least 1 and no more than the file holds, it is truncated or "
                "damaged, fetch it again");
    }
    if (i == 0) row = dim;
    elements *= dim;
  }
  const auto type = file.value<std::uint32_t>("a tensor's type");
  const TensorLayout layout = layout_of(type);
  if (layout.block <= 0) {
    file.fail("got type " + std::to_string(type) + " for tensor '" + name +
              "', expected one that this release knows, update pronk or convert the model again");
  }
  const auto block = static_cast<std::uint64_t>(layout.block);
  if (row % block != 0) {
    file.fail("got rows of " + std::to_string(row) + " elements in tensor '" + name +
              "', expected a multiple of " + std::to_string(block) + ", the file is damaged");
  }
  const bool operand = n_dims == 1 || is_operand(name);
  if (is_no_weight(type, name) || (operand && (block > 1 || layout.bytes < sizeof(float)))) {
    file.fail("got type " + std::to_string(type) + " for tensor '" + name + "', expected " +
              (operand ? "f32" : "a type of weights") +
              " for one of its kind, convert the model again");
  }
  const std::uint64_t blocks = elements / block;
  if (blocks > file.size() / layout.bytes) {
    file.fail("got " + std::to_string(file.size()) + " bytes, too few for tensor '" + name +
              "', expected a whole GGUF file, it is truncated or damaged, fetch it again");
  }
  return blocks * layout.bytes;
}

void check_tensors(GgufFile& file, std::uint64_t n_tensors, std::uint64_t alignment,
                   TensorLayoutOf layout_of) {
  std::unordered_set<std::string> names;
  std::uint64_t end = 0;   // of the tensors so far, from the start of the data
  std::uint64_t next = 0;  // where the next one must start
  for (std::uint64_t i = 0; i < n_tensors; ++i) {
    const std::string name = file.text(kMaxNameBytes, "a tensor's name");
    if (!names.insert(name).second) {
      file.fail("got tensor '" + name + "' twice, expected it once, the file is damaged");
    }
    const std::uint64_t bytes = read_tensor_bytes(file, name, layout_of);
    const auto offset = file.value<std::uint64_t>("a tensor's offset");
    if (offset != next) {
      file.fail("got offset " + std::to_string(offset) + " for tensor '" + name + "', expected " +
                std::to_string(next) + ", the file is damaged");
    }
    // Neither sum overflows: a tensor is no larger than the file, and a file not larger than 2^63.
    end = offset + bytes;
    if (end > file.size()) {
      file.fail("got " + std::to_string(file.size()) + " bytes, too few for tensor '" + name +
                "', expected a whole GGUF file, it is truncated or damaged, fetch it again");
    }
    next = padded(end, alignment);
  }
  if (n_tensors == 0) return;
  const std::uint64_t start = padded(file.position(), alignment);
  if (start > file.size() || end > file.size() - start) {
    file.fail("got " + std::to_string(file.size()) + " bytes, expected " +
              std::to_string(start + end) + ", the file is truncated, fetch it again");
  }
}

}  // namespace

GgufSummary check_gguf(const std::string& path, TensorLayoutOf layout_of) {
  GgufFile file(path);
  check_magic(file);
  check_version(file);
  GgufSummary summary;
  summary.n_tensors = read_count(file, "the number of tensors", kMinTensorBytes);
  const std::uint64_t n_pairs = read_count(file, "the number of key/value pairs", kMinPairBytes);
  const GgufMetadata metadata(file, n_pairs);
  const std::uint64_t alignment = read_alignment(file, metadata);
  check_tensors(file, summary.n_tensors, alignment, layout_of);
  check_gguf_values(file, metadata);
  check_gguf_divisors(file, metadata);

  summary.architecture = metadata.text("general.architecture");
  summary.has_tokenizer = metadata.find("tokenizer.ggml.model") != nullptr;
  const auto split = [&](const char* key) -> std::optional<std::uint32_t> {
    const GgufValue* value = metadata.find(key);
    if (value == nullptr) return std::nullopt;
    if (value->type != GgufType::kUint16) {  // llama.cpp aborts on another type
      file.fail(std::string("got another type than uint16 for ") + key +
                ", expected uint16, the file is damaged");
    }
    return static_cast<std::uint32_t>(value->number);
  };
  summary.split_index = split("split.no").value_or(0);
  summary.split_count = split("split.count").value_or(1);
  return summary;
}

}  // namespace pronk::inline v0
