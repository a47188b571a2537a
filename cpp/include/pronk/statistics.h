// A snapshot of a scheduler. Reading it never waits for a decode step.
#pragma once

#include <cstdint>
#include <string>

#include "pronk/api.h"

namespace pronk::inline v0 {

/// See docs/observability.md for what each tells. Counters only grow.
struct Statistics {
  // The gate.
  std::int32_t max_concurrent = 0;
  std::string max_concurrent_reason;  ///< "asked for", or what "auto" went by
  std::int32_t active = 0;
  std::int32_t waiting = 0;
  std::int32_t high_water = 0;  ///< most permits ever held at once
  std::uint64_t acquired = 0;   ///< permits handed out
  std::uint64_t released = 0;
  std::uint64_t timed_out = 0;  ///< waits that ended by timeout
  std::uint64_t abandoned = 0;  ///< waits that ended by cancellation
  double wait_seconds = 0;      ///< waited in all, by granted tickets

  // The pool; zero without one.
  std::string layout;                  ///< "isolated", "batched", or empty
  std::string kv;                      ///< "shared", "split", or empty
  std::string kv_reason;               ///< why that arrangement
  std::string flash_attention;         ///< "on", "off", "auto" (llama.cpp decides), or empty
  std::string flash_attention_reason;  ///< why
  std::string type_k, type_v;          ///< types of the KV cache
  std::string kv_type_reason;          ///< why these
  std::int32_t n_lanes = 0;
  std::int32_t n_ctx = 0;          ///< tokens that a permit may use, prompt and completion together
  std::string n_ctx_reason;        ///< "asked for", or what the choice went by
  std::int32_t n_cached = 0;       ///< most idle sequences kept for reuse besides the lanes
  std::string n_cached_reason;     ///< why so many
  std::uint64_t memory_bytes = 0;  ///< taken by the contexts on all devices, weights not counted
  std::int32_t running = 0;        ///< generations on a lane
  std::int32_t cached_sequences = 0;  ///< sequences kept for reuse that no generation uses
  std::uint64_t kv_tokens = 0;        ///< tokens in the KV cache, counted per sequence
  /// Cells of the KV cache in use. With kv "shared" a prefix that sequences have in common counts
  /// once; with "split" and in layout "isolated" each has its own, and this equals kv_tokens. A
  /// recurrent state counts as one.
  std::uint64_t kv_cells = 0;
  std::uint64_t generations = 0;  ///< started
  std::uint64_t completed = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t failed = 0;
  std::uint64_t prompt_tokens = 0;  ///< of all prompts
  std::uint64_t reused_tokens = 0;  ///< of these, taken from a known prefix
  std::uint64_t evaluated_tokens =
      0;  ///< tokens that went through the model, prompts and completions
  std::uint64_t completion_tokens = 0;
  std::uint64_t prefix_hits = 0;     ///< prompts with a reused prefix
  std::uint64_t reuse_refused = 0;   ///< prefixes known but not reusable in this kind of memory
  std::string reuse_refused_reason;  ///< the latest of these
  std::uint64_t steps = 0;           ///< rounds of the decode loop
  double step_tokens_mean = 0;       ///< tokens that a step evaluates, over the last 512 steps
  std::int32_t step_tokens_max = 0;
  std::int32_t n_threads =
      0;  ///< compute threads in use; fewer than asked for where that is faster
  double step_seconds_p50 = 0;  ///< over the last 512 steps
  double step_seconds_p99 = 0;
  double step_seconds_max = 0;
  double seconds_since_progress = 0;  ///< since the last finished step while there is work, else 0
  bool healthy = true;                ///< false when the backend failed for good
};

}  // namespace pronk::inline v0
