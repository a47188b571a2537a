// Refuses a broken model file with a readable reason before llama.cpp opens it: some of what it
// would meet there aborts the process. Reads the header only, calls nothing of llama.cpp.
#pragma once

#include <cstdint>
#include <string>

namespace pronk::inline v0 {

/// How a tensor type is stored: `block` elements in `bytes` bytes. A block of 0 marks an unknown
/// type.
struct TensorLayout {
  std::int64_t block = 0;
  std::uint64_t bytes = 0;
};
using TensorLayoutOf = TensorLayout (*)(std::uint32_t type);

struct GgufSummary {
  std::string architecture;
  std::uint64_t n_tensors = 0;
  std::uint32_t split_index = 0;
  std::uint32_t split_count = 1;  ///< files that make up the model
  bool has_tokenizer = false;
};

/// Throws ModelLoadError: with errno for a file that cannot be read, without for one whose content
/// is at fault.
GgufSummary check_gguf(const std::string& path, TensorLayoutOf layout_of);

}  // namespace pronk::inline v0
