// The devices of this machine as ggml sees them.
#pragma once

#include <string>
#include <vector>

#include "ggml-backend.h"
#include "pronk/engine.h"

namespace pronk::inline v0 {

/// Makes llama.cpp usable and harmless: its log is ours, its handlers do not run debuggers.
/// Idempotent, from any thread; before any other use of llama.cpp.
void init_llama();

/// GPUs that can hold a model: the discrete ones, each once; where there is none, the integrated
/// ones.
std::vector<ggml_backend_dev_t> usable_gpus();

/// Why usable_gpus() is empty, and what to do.
std::string no_gpu_reason();

Device describe_device(ggml_backend_dev_t device);

}  // namespace pronk::inline v0
