// What pools take of memory: frozen records.
#include "pronk/memory.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "record.h"

namespace pronk::bindings {
namespace {

void bind_device_memory(nb::module_& m) {
  using D = DeviceMemory;
  nb::class_<D> cls(m, "DeviceMemory",
                    "Bytes of one device that an engine and a pool take.\n\n"
                    "Example:\n"
                    "    >>> {d.device: d.pool for d in scheduler.memory()}");
  cls.def_ro("device", &D::device, "'CPU' for all of main memory, 'CUDA0', 'Metal', ...")
      .def_ro("weights", &D::weights, "Bytes of the model, which the engine holds already.")
      .def_ro("kv", &D::kv, "Bytes of the KV cache and of recurrent states.")
      .def_ro("compute", &D::compute, "Bytes of the buffers for intermediate results.")
      .def_ro("other", &D::other,
              "Bytes that llama.cpp's own accounting leaves out: rows of logits, full tables of "
              "cells.")
      .def_ro("free", &D::free,
              "Bytes that are free now, with the engine loaded; 0 where that is not known, and in "
              "memory().")
      .def_prop_ro("pool", &D::pool, "Bytes that making a pool takes: kv, compute and other.")
      .def_prop_ro("total", &D::total, "Bytes in all: the weights and the pool.");
  bind_record(cls, "DeviceMemory",
              {"device", "weights", "kv", "compute", "other", "free", "pool", "total"});
}

}  // namespace

void bind_memory(nb::module_& m) {
  using E = MemoryEstimate;
  bind_device_memory(m);
  nb::class_<E> cls(m, "MemoryEstimate",
                    "What a pool would be made of, and what it would take.\n\n"
                    "Example:\n"
                    "    >>> estimate = engine.estimate_memory(n_ctx=8192, max_concurrent=4)\n"
                    "    >>> estimate.fits, sum(device.pool for device in estimate.devices)");
  cls.def_ro("devices", &E::devices, "One record per device; empty where it cannot be told.")
      .def_ro("max_concurrent", &E::max_concurrent, "Permits.")
      .def_ro("n_ctx", &E::n_ctx, "Tokens that each permit may use.")
      .def_ro("n_cached", &E::n_cached,
              "Idle sequences kept for reuse, as many as there are without a shortage.")
      .def_ro("layout", &E::layout, "'isolated' or 'batched'.")
      .def_ro("kv", &E::kv, "'shared', 'split', or empty.")
      .def_ro("type_k", &E::type_k, "Type of the keys in the KV cache.")
      .def_ro("type_v", &E::type_v, "Type of the values in the KV cache.")
      .def_ro("max_concurrent_reason", &E::max_concurrent_reason, "Where the number comes from.")
      .def_ro("n_ctx_reason", &E::n_ctx_reason, "Where the number comes from.")
      .def_ro("fits", &E::fits, "Whether what is free takes it; True too where that is not known.");
  bind_record(cls, "MemoryEstimate",
              {"devices", "max_concurrent", "n_ctx", "n_cached", "layout", "kv", "type_k", "type_v",
               "max_concurrent_reason", "n_ctx_reason", "fits"});
}

}  // namespace pronk::bindings
