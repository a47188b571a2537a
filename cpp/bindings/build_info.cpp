// What this copy was built from.
#include "pronk/build_info.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "pronk/version.h"

namespace pronk::bindings {
namespace {

nb::dict facts() {
  const BuildInfo& info = build_info();
  nb::dict result;
  result["version"] = info.version;
  result["llama_cpp_commit"] = info.llama_cpp_commit;
  result["llama_cpp_tag"] = info.llama_cpp_tag;
  result["compiler"] = info.compiler;
  result["build_type"] = info.build_type;
  result["cpu_features"] = info.cpu_features;
  result["backends"] = info.backends;
  result["build_flags"] = info.flags;
  return result;
}

}  // namespace

void bind_build_info(nb::module_& m) {
  m.attr("version") = PRONK_VERSION;
  m.def("build_info", &facts, nb::sig("def build_info() -> dict[str, typing.Any]"),
        "Return what this copy of pronk was built from: version, llama_cpp_commit (40 hexadecimal "
        "digits), "
        "llama_cpp_tag, compiler, build_type, cpu_features (list), backends (list), build_flags "
        "(dict).");
}

}  // namespace pronk::bindings
