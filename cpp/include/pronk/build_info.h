// What this copy of pronk was built from, and for.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "pronk/api.h"

namespace pronk::inline v0 {

/// Where this library comes from.
struct BuildInfo {
  std::string version;           ///< of pronk
  std::string llama_cpp_commit;  ///< 40 hexadecimal digits
  std::string llama_cpp_tag;
  std::string compiler;
  std::string build_type;                    ///< "Release", ...
  std::vector<std::string> cpu_features;     ///< that the compute kernels use, like "AVX2"
  std::vector<std::string> backends;         ///< built in, like "CPU", "CUDA"
  std::map<std::string, std::string> flags;  ///< build options, "ON" or "OFF"
};

/// Valid for the life of the process. From any thread.
PRONK_API const BuildInfo& build_info();

}  // namespace pronk::inline v0
