// One llama_context as the decode loop's Backend.
#pragma once

#include <memory>

#include "engine_impl.h"
#include "llama_threads.h"

struct llama_model;

namespace pronk::inline v0 {

/// The context keeps the model and the threads alive. Throws InvalidArgumentError,
/// InsufficientMemoryError, BackendError.
std::unique_ptr<Backend> make_llama_backend(std::shared_ptr<llama_model> model,
                                            const ModelInfo& info, const BackendOptions& options,
                                            std::shared_ptr<LlamaThreads> threads);

}  // namespace pronk::inline v0
