// Statistics of a scheduler: a frozen record.
#include "pronk/statistics.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "bindings.h"
#include "record.h"

namespace pronk::bindings {

void bind_statistics(nb::module_& m) {
  using S = Statistics;
  nb::class_<S> cls(
      m, "Statistics",
      "A snapshot of a scheduler. Fields of the pool are zero or empty without one.\n\n"
      "Example:\n"
      "    >>> pronk.InferenceScheduler(4).statistics().active\n"
      "    0");
  cls.def_ro("max_concurrent", &S::max_concurrent, "Permits that may be held at once.")
      .def_ro("max_concurrent_reason", &S::max_concurrent_reason,
              "'asked for', 'resized', or what 'auto' went by.")
      .def_ro("active", &S::active, "Permits held now.")
      .def_ro("waiting", &S::waiting, "Tickets in the queue now.")
      .def_ro("high_water", &S::high_water, "Most permits ever held at once.")
      .def_ro("acquired", &S::acquired, "Permits handed out.")
      .def_ro("released", &S::released, "Permits given back.")
      .def_ro("timed_out", &S::timed_out, "Waits that ended by timeout.")
      .def_ro("abandoned", &S::abandoned, "Waits that ended by cancellation.")
      .def_ro("wait_seconds", &S::wait_seconds, "Seconds waited in all, by granted tickets.")
      .def_ro("layout", &S::layout, "'isolated', 'batched', or empty.")
      .def_ro("kv", &S::kv, "'shared', 'split', or empty.")
      .def_ro("kv_reason", &S::kv_reason, "Why that arrangement.")
      .def_ro("flash_attention", &S::flash_attention,
              "'on', 'off', 'auto' where llama.cpp decides, or empty.")
      .def_ro("flash_attention_reason", &S::flash_attention_reason, "Why.")
      .def_ro("type_k", &S::type_k, "Type of the keys in the KV cache.")
      .def_ro("type_v", &S::type_v, "Type of the values in the KV cache.")
      .def_ro("kv_type_reason", &S::kv_type_reason, "Why these types.")
      .def_ro("n_lanes", &S::n_lanes, "Lanes of the pool.")
      .def_ro("n_ctx", &S::n_ctx, "Tokens that a permit may use, prompt and completion together.")
      .def_ro("n_ctx_reason", &S::n_ctx_reason, "'asked for', or what the choice went by.")
      .def_ro("n_cached", &S::n_cached, "Most idle sequences kept for reuse besides the lanes.")
      .def_ro("n_cached_reason", &S::n_cached_reason, "Why so many.")
      .def_ro("memory_bytes", &S::memory_bytes,
              "Bytes that the contexts took on all devices, weights not counted; see memory().")
      .def_ro("running", &S::running, "Generations on a lane.")
      .def_ro("cached_sequences", &S::cached_sequences, "Idle sequences kept for reuse.")
      .def_ro("kv_tokens", &S::kv_tokens, "Tokens in the KV cache, counted per sequence.")
      .def_ro("kv_cells", &S::kv_cells,
              "Cells of the KV cache in use; one that several sequences share counts once.")
      .def_ro("generations", &S::generations, "Generations started.")
      .def_ro("completed", &S::completed, "Generations that ended by themselves.")
      .def_ro("cancelled", &S::cancelled, "Generations that were cancelled.")
      .def_ro("failed", &S::failed, "Generations that failed.")
      .def_ro("prompt_tokens", &S::prompt_tokens, "Tokens of all prompts.")
      .def_ro("reused_tokens", &S::reused_tokens, "Of these, taken from a known prefix.")
      .def_ro("evaluated_tokens", &S::evaluated_tokens,
              "Tokens that went through the model, prompts and completions.")
      .def_ro("completion_tokens", &S::completion_tokens, "Tokens sampled.")
      .def_ro("prefix_hits", &S::prefix_hits, "Prompts with a reused prefix.")
      .def_ro("reuse_refused", &S::reuse_refused,
              "Prefixes known, but not reusable in this kind of memory.")
      .def_ro("reuse_refused_reason", &S::reuse_refused_reason, "The latest reason for that.")
      .def_ro("steps", &S::steps, "Rounds of the decode loop.")
      .def_ro("step_tokens_mean", &S::step_tokens_mean,
              "Tokens that a step evaluates, over the last 512 steps.")
      .def_ro("step_tokens_max", &S::step_tokens_max, "Most tokens of one of these steps.")
      .def_ro("n_threads", &S::n_threads,
              "Compute threads in use: fewer than there are where that is faster.")
      .def_ro("step_seconds_p50", &S::step_seconds_p50, "Median over the last 512 steps.")
      .def_ro("step_seconds_p99", &S::step_seconds_p99, "99th percentile over the last 512 steps.")
      .def_ro("step_seconds_max", &S::step_seconds_max, "Longest of the last 512 steps.")
      .def_ro("seconds_since_progress", &S::seconds_since_progress,
              "Since the last finished step while there is work, else 0.")
      .def_ro("healthy", &S::healthy, "False when the backend failed for good.");
  bind_record(cls, "Statistics",
              {"max_concurrent",
               "max_concurrent_reason",
               "active",
               "waiting",
               "high_water",
               "acquired",
               "released",
               "timed_out",
               "abandoned",
               "wait_seconds",
               "layout",
               "kv",
               "kv_reason",
               "flash_attention",
               "flash_attention_reason",
               "type_k",
               "type_v",
               "kv_type_reason",
               "n_lanes",
               "n_ctx",
               "n_ctx_reason",
               "n_cached",
               "n_cached_reason",
               "memory_bytes",
               "running",
               "cached_sequences",
               "kv_tokens",
               "kv_cells",
               "generations",
               "completed",
               "cancelled",
               "failed",
               "prompt_tokens",
               "reused_tokens",
               "evaluated_tokens",
               "completion_tokens",
               "prefix_hits",
               "reuse_refused",
               "reuse_refused_reason",
               "steps",
               "step_tokens_mean",
               "step_tokens_max",
               "n_threads",
               "step_seconds_p50",
               "step_seconds_p99",
               "step_seconds_max",
               "seconds_since_progress",
               "healthy"});
}

}  // namespace pronk::bindings
