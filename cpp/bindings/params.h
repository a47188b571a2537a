// Keyword options to the structs of the C++ API.
#pragma once

#include <nanobind/nanobind.h>

#include "pronk/params.h"
#include "pronk/scheduler.h"

// The options of generate() as they stand in its signature, for editors, type checkers and help().
#define PRONK_GENERATE_KEYWORDS                                                               \
  "max_tokens: int | None = None, temperature: float = 0.8, top_k: int = 40, top_p: float = " \
  "0.95, "                                                                                    \
  "min_p: float = 0.05, repeat_penalty: float = 1.0, frequency_penalty: float = 0.0, "        \
  "presence_penalty: float = 0.0, penalty_last_n: int = 64, seed: int | None = None, "        \
  "logit_bias: collections.abc.Mapping[int, float] | None = None, ignore_eos: bool = False, " \
  "stop: str | collections.abc.Sequence[str] = (), logprobs: int | bool | None = None, "      \
  "cache: bool = True, cache_scope: str = '', grammar: str | None = None, "                   \
  "json_schema: collections.abc.Mapping[str, typing.Any] | str | type | None = None"

#define PRONK_GENERATE_ARGS                                                                   \
  "    prompt: Text, or token ids (a sequence or a one-dimensional array of int), which are " \
  "taken as\n"                                                                                \
  "        they are: no BOS is added.\n" PRONK_SAMPLING_ARGS

#define PRONK_SAMPLING_ARGS                                                                        \
  "    max_tokens: Most tokens to sample, >= 0; None runs to the end of the context.\n"            \
  "    temperature: In [0, 100]; 0 is greedy.\n"                                                   \
  "    top_k: Keep the k most likely tokens; 0 keeps all.\n"                                       \
  "    top_p: Keep the most likely tokens up to this probability, in (0, 1]; 1 is off.\n"          \
  "    min_p: Drop tokens below min_p times the best one's probability, in [0, 1].\n"              \
  "    repeat_penalty: Makes tokens that occurred less likely, in (0, 100]; 1 is off.\n"           \
  "    frequency_penalty: Subtracted from the logit per occurrence, in [-100, 100].\n"             \
  "    presence_penalty: Subtracted once, in [-100, 100].\n"                                       \
  "    penalty_last_n: Tokens that the penalties look back on; -1 is all, 0 is off.\n"             \
  "    seed: In [0, 2**64); None draws a fresh one.\n"                                             \
  "    logit_bias: Added to the logits, by token id; -inf bans a token.\n"                         \
  "    ignore_eos: Never sample an end-of-generation token.\n"                                     \
  "    stop: One text or several; the completion ends before the first of them.\n"                 \
  "    logprobs: Report log probabilities: True for the chosen tokens, a number n >= 0 for the n " \
  "most\n"                                                                                         \
  "        likely alternatives too, None for none.\n"                                              \
  "    cache: Reuse known prefixes, and leave this one for others.\n"                              \
  "    cache_scope: Prefixes are only shared within one scope.\n"                                  \
  "    grammar: GBNF that the text has to follow, from its rule ``root`` on.\n"                    \
  "    json_schema: A JSON schema that the text has to follow: a dict, JSON text, or a pydantic "  \
  "model\n"                                                                                        \
  "        class. The completion's ``parsed`` is then the value.\n"

#define PRONK_POOL_KEYWORDS                                                              \
  "layout: str = 'batched', kv: str = 'auto', n_batch: int | None = None, "              \
  "n_threads: int | None = None, flash_attention: str = 'auto', type_k: str = 'auto', "  \
  "type_v: str = 'auto', n_cached: int | None = None, cache_tokens: int | None = None, " \
  "max_step_ms: float = 100.0"

#define PRONK_POOL_ARGS                                                                            \
  "    n_ctx: Tokens that a permit may use, prompt and completion together, >= 2; None takes "     \
  "the\n"                                                                                          \
  "        model's, at most 4096; 'auto' as many as fit into memory, at most the model's.\n"       \
  "    layout: 'batched', one llama_context and one batch for all permits, or 'isolated', a\n"     \
  "        context per permit: the answer then does not depend on the neighbours to the last\n"    \
  "        bit of the logits.\n"                                                                   \
  "    kv: Batched: 'shared' cells, 'split' streams, or 'auto'; statistics().kv_reason says "      \
  "why.\n"                                                                                         \
  "    n_batch: Most tokens that go through the model in one call; None is 512 on a GPU, on a "    \
  "CPU\n"                                                                                          \
  "        256 batched and 128 isolated.\n"                                                        \
  "    n_threads: Compute threads of the whole pool; None takes the CPUs of this process, and\n"   \
  "        batched no more of them than pay while other work runs on the machine.\n"               \
  "    flash_attention: 'on', 'off' or 'auto': off on a CPU, where it is slower, as long as "      \
  "the\n"                                                                                          \
  "        attention scores are small.\n"                                                          \
  "    type_k, type_v: Type of the KV cache: f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0; auto "  \
  "is f16,\n"                                                                                      \
  "        since smaller ones change the answers.\n"                                               \
  "    n_cached: Batched: idle sequences kept for reuse besides the lanes; None is 16, with kv\n"  \
  "        'split' no more than fill 32768 cells or than two per permit, whichever is more, and\n" \
  "        fewer where memory is short.\n"                                                         \
  "    cache_tokens: Most tokens that idle sequences keep for reuse, all together; None is what\n" \
  "        there is room for.\n"                                                                   \
  "    max_step_ms: Batched: prompts are cut so that a step of running streams takes no longer;\n" \
  "        nor longer than four steps without them, where chunks so small are worth their cost.\n"

namespace pronk::bindings {

inline constexpr std::int64_t kMostConcurrent = 4096;

/// `function` is whose keywords they are.
GenerationParams to_generation_params(const nanobind::kwargs& keywords,
                                      const char* function = "generate");
PoolOptions to_pool_options(nanobind::handle n_ctx, const nanobind::kwargs& keywords,
                            const char* function = "init_pool");
/// In [1, 4096], or kAuto for "auto".
std::int32_t to_max_concurrent(nanobind::handle value);
/// In [-1000, 1000]; higher goes first.
std::int32_t to_priority(nanobind::handle value);

}  // namespace pronk::bindings
