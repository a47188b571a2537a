// A model loaded by llama.cpp.
#pragma once

#include <memory>
#include <string>

#include "engine_impl.h"

namespace pronk::inline v0 {

/// Throws ModelLoadError, InvalidArgumentError, InsufficientMemoryError, and what options.progress
/// throws.
std::shared_ptr<EngineImpl> load_llama_engine(const std::string& path, const LoadOptions& options);

}  // namespace pronk::inline v0
