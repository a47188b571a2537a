// Reads what a loaded model says about itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "llama.h"
#include "pronk/engine.h"

namespace pronk::inline v0 {

/// `n_gpu_layers` as asked for, -1 for all.
ModelInfo read_model_info(const llama_model* model, const std::string& path,
                          std::int32_t n_gpu_layers);

/// A number of the metadata under the model's architecture, like "attention.key_length"; none for
/// arrays.
std::optional<std::int64_t> model_number(const ModelInfo& info, const std::string& name);

/// Elements of a key or value vector of one head, in the layers that most models have; 0 without
/// attention.
struct HeadSizes {
  std::int64_t key = 0;
  std::int64_t value = 0;
};
HeadSizes head_sizes(const ModelInfo& info);

}  // namespace pronk::inline v0
