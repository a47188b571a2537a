// Numbers of a model file that llama.cpp divides by without a look: a 0 ends the process (SIGFPE).
#pragma once

namespace pronk::inline v0 {

class GgufFile;
class GgufMetadata;

/// Throws ModelLoadError for one that is 0, or missing where that means 0.
void check_gguf_divisors(const GgufFile& file, const GgufMetadata& metadata);

}  // namespace pronk::inline v0
