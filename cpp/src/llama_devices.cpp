#include "llama_devices.h"

#include <algorithm>
#include <cstring>

#include "host_memory.h"
#include "llama.h"
#include "llama_asserts.h"
#include "llama_log.h"

namespace pronk::inline v0 {
namespace {

const char* kind_of(ggml_backend_dev_t device) {
  switch (ggml_backend_dev_type(device)) {
    case GGML_BACKEND_DEVICE_TYPE_CPU:
      return "cpu";
    case GGML_BACKEND_DEVICE_TYPE_GPU:
      return "gpu";
    case GGML_BACKEND_DEVICE_TYPE_IGPU:
      return "igpu";
    default:
      return "accel";
  }
}

bool same_device(ggml_backend_dev_t a, ggml_backend_dev_t b) {
  ggml_backend_dev_props x, y;
  ggml_backend_dev_get_props(a, &x);
  ggml_backend_dev_get_props(b, &y);
  return x.device_id != nullptr && y.device_id != nullptr &&
         std::strcmp(x.device_id, y.device_id) == 0;
}

/// Starts llama.cpp and its backends. Returns what they complained of: a backend that finds no
/// device says why here, and nowhere else.
std::string start() {
  install_log_hook();
  install_abort_hook();
  const LogCapture log;
  llama_backend_init();
  ggml_backend_dev_count();  // the first use of the backends
  return log.reason();
}

const std::string& complaints() {
  static const std::string text = start();
  return text;
}

}  // namespace

void init_llama() { complaints(); }

std::vector<ggml_backend_dev_t> usable_gpus() {
  init_llama();
  std::vector<ggml_backend_dev_t> discrete, integrated;
  for (std::size_t i = 0; i < ggml_backend_dev_count(); ++i) {
    const ggml_backend_dev_t device = ggml_backend_dev_get(i);
    const auto type = ggml_backend_dev_type(device);
    // Two backends may both drive one GPU.
    const bool known = std::any_of(discrete.begin(), discrete.end(), [&](ggml_backend_dev_t other) {
      return same_device(device, other);
    });
    if (type == GGML_BACKEND_DEVICE_TYPE_GPU && !known) discrete.push_back(device);
    // They give integrated GPUs different names, so that only those of the first backend are sure
    // to differ.
    const bool other_backend =
        !integrated.empty() &&
        ggml_backend_dev_backend_reg(device) != ggml_backend_dev_backend_reg(integrated.front());
    if (type == GGML_BACKEND_DEVICE_TYPE_IGPU && !other_backend) integrated.push_back(device);
  }
  return discrete.empty() ? integrated : discrete;
}

std::string no_gpu_reason() {
  init_llama();
  std::string names;
  for (std::size_t i = 0; i < ggml_backend_reg_count(); ++i) {
    const std::string name = ggml_backend_reg_name(ggml_backend_reg_get(i));
    if (name == "CPU" || name == "BLAS") continue;
    names += (names.empty() ? "" : ", ") + name;
  }
  if (names.empty()) {
    return "this build of pronk has no GPU backend, rebuild it with GGML_CUDA=ON (or "
           "GGML_METAL=ON), or use "
           "n_gpu_layers 0";
  }
  return names + " found no device (" + complaints() + "), check the driver, or use n_gpu_layers 0";
}

Device describe_device(ggml_backend_dev_t device) {
  Device result;
  result.name = ggml_backend_dev_name(device);
  result.description = ggml_backend_dev_description(device);
  result.kind = kind_of(device);
  std::size_t free = 0, total = 0;
  ggml_backend_dev_memory(device, &free, &total);
  result.memory_total = total;
  result.memory_free = free;
  // For the CPU ggml says that all of it is free.
  if (result.kind == "cpu") result.memory_free = available_host_memory().value_or(free);
  return result;
}

std::vector<Device> devices() {
  init_llama();
  std::vector<Device> result;
  for (std::size_t i = 0; i < ggml_backend_dev_count(); ++i)
    result.push_back(describe_device(ggml_backend_dev_get(i)));
  std::stable_partition(result.begin(), result.end(),
                        [](const Device& device) { return device.kind != "cpu"; });
  return result;
}

}  // namespace pronk::inline v0
