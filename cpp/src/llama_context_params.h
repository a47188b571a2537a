// Turns the options of a context into llama.cpp's, checked against everything on which it would
// abort.
#pragma once

#include "engine_impl.h"
#include "llama.h"

namespace pronk::inline v0 {

/// Throws InvalidArgumentError that names the option at fault.
llama_context_params make_context_params(const ModelInfo& info, const BackendOptions& options);

}  // namespace pronk::inline v0
