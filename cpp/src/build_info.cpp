#include "pronk/build_info.h"

#include <cstring>
#include <string_view>

#include "ggml-backend.h"
#include "llama_devices.h"
#include "pronk/version.h"

namespace pronk::inline v0 {
namespace {

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#elif defined(__GNUC__)
  return "gcc " __VERSION__;
#elif defined(_MSC_VER)
  return "msvc " + std::to_string(_MSC_VER);
#else
  return "unknown";
#endif
}

std::string on_off(std::string_view value) { return value == "1" || value == "ON" ? "ON" : "OFF"; }

BuildInfo collect() {
  init_llama();
  BuildInfo info;
  info.version = PRONK_VERSION;
  info.llama_cpp_commit = PRONK_LLAMA_COMMIT;
  info.llama_cpp_tag = PRONK_LLAMA_TAG;
  info.compiler = compiler();
  info.build_type = PRONK_BUILD_TYPE;
  info.flags = {{"GGML_NATIVE", on_off(PRONK_GGML_NATIVE)},
                {"GGML_CUDA", on_off(PRONK_GGML_CUDA)},
                {"GGML_METAL", on_off(PRONK_GGML_METAL)},
                {"GGML_OPENMP", on_off(PRONK_GGML_OPENMP)}};
  for (std::size_t i = 0; i < ggml_backend_reg_count(); ++i) {
    const ggml_backend_reg_t backend = ggml_backend_reg_get(i);
    info.backends.emplace_back(ggml_backend_reg_name(backend));
    if (info.backends.back() != "CPU") continue;
    const auto get_features = reinterpret_cast<ggml_backend_get_features_t>(
        ggml_backend_reg_get_proc_address(backend, "ggml_backend_get_features"));
    if (get_features == nullptr) continue;
    for (const ggml_backend_feature* feature = get_features(backend); feature->name != nullptr;
         ++feature) {
      // Most are "1"; a few are sizes, like that of a vector register.
      if (std::strcmp(feature->value, "0") == 0) continue;
      const bool flag = std::strcmp(feature->value, "1") == 0;
      info.cpu_features.push_back(flag ? feature->name
                                       : std::string(feature->name) + "=" + feature->value);
    }
  }
  return info;
}

}  // namespace

const BuildInfo& build_info() {
  static const BuildInfo info = collect();
  return info;
}

}  // namespace pronk::inline v0
