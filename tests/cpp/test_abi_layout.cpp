// What other projects compile into themselves: sizes, places of fields, values of enumerators.
// Compiling this file is the test; tools/abi_layout.py writes it. A number that changes is a change
// of the ABI, and asks for another minor version once this one is released: see "Versions" in
// docs/embedding.md.
#include <cstddef>

#include "pronk/pronk.h"

// Sizes are those of 64-bit systems with libstdc++, which the wheels for Linux are built for.
#if defined(__GLIBCXX__) && defined(__LP64__) && _GLIBCXX_USE_CXX11_ABI

#define SIZE(type, bytes) static_assert(sizeof(type) == (bytes), "the size of " #type " changed")
#define FIELD(type, field, bytes) \
  static_assert(offsetof(type, field) == (bytes), #type "::" #field " moved")
#define VALUE(type, name, number) \
  static_assert(static_cast<int>(type::name) == (number), #type "::" #name " changed")

// Some structs hold members that are no standard-layout types; every compiler in question knows
// their offsets.
#pragma GCC diagnostic ignored "-Winvalid-offsetof"

namespace pronk {

SIZE(BuildInfo, 256);
FIELD(BuildInfo, version, 0);
FIELD(BuildInfo, llama_cpp_commit, 32);
FIELD(BuildInfo, llama_cpp_tag, 64);
FIELD(BuildInfo, compiler, 96);
FIELD(BuildInfo, build_type, 128);
FIELD(BuildInfo, cpu_features, 160);
FIELD(BuildInfo, backends, 184);
FIELD(BuildInfo, flags, 208);

SIZE(ChatParams, 168);
FIELD(ChatParams, tools, 0);
FIELD(ChatParams, tool_choice, 32);
FIELD(ChatParams, tool_name, 64);
FIELD(ChatParams, parallel_tool_calls, 96);
FIELD(ChatParams, chat_template, 104);
FIELD(ChatParams, template_kwargs, 136);

SIZE(ToolCall, 96);
FIELD(ToolCall, id, 0);
FIELD(ToolCall, name, 32);
FIELD(ToolCall, arguments, 64);

SIZE(ChatMessage, 88);
FIELD(ChatMessage, content, 0);
FIELD(ChatMessage, reasoning_content, 32);
FIELD(ChatMessage, tool_calls, 64);

SIZE(ToolCallDelta, 104);
FIELD(ToolCallDelta, index, 0);
FIELD(ToolCallDelta, id, 8);
FIELD(ToolCallDelta, name, 40);
FIELD(ToolCallDelta, arguments, 72);

SIZE(ChatDelta, 88);
FIELD(ChatDelta, content, 0);
FIELD(ChatDelta, reasoning_content, 32);
FIELD(ChatDelta, tool_calls, 64);

SIZE(Usage, 12);
FIELD(Usage, prompt_tokens, 0);
FIELD(Usage, cached_tokens, 4);
FIELD(Usage, completion_tokens, 8);

SIZE(Timings, 32);
FIELD(Timings, queued, 0);
FIELD(Timings, prefill, 8);
FIELD(Timings, first_token, 16);
FIELD(Timings, decode, 24);

SIZE(TokenLogprob, 32);
FIELD(TokenLogprob, token, 0);
FIELD(TokenLogprob, logprob, 4);
FIELD(TokenLogprob, top, 8);

SIZE(Completion, 232);
FIELD(Completion, text, 0);
FIELD(Completion, tokens, 32);
FIELD(Completion, finish_reason, 56);
FIELD(Completion, usage, 60);
FIELD(Completion, timings, 72);
FIELD(Completion, logprobs, 104);
FIELD(Completion, message, 128);
FIELD(Completion, is_json, 224);

SIZE(LoadOptions, 48);
FIELD(LoadOptions, n_gpu_layers, 0);
FIELD(LoadOptions, use_mmap, 8);
FIELD(LoadOptions, use_mlock, 9);
FIELD(LoadOptions, check_tensors, 10);
FIELD(LoadOptions, vocab_only, 11);
FIELD(LoadOptions, progress, 16);

SIZE(Device, 112);
FIELD(Device, name, 0);
FIELD(Device, description, 32);
FIELD(Device, kind, 64);
FIELD(Device, memory_total, 96);
FIELD(Device, memory_free, 104);

SIZE(ModelInfo, 248);
FIELD(ModelInfo, path, 0);
FIELD(ModelInfo, architecture, 32);
FIELD(ModelInfo, description, 64);
FIELD(ModelInfo, size_bytes, 96);
FIELD(ModelInfo, n_params, 104);
FIELD(ModelInfo, n_vocab, 112);
FIELD(ModelInfo, n_ctx_train, 116);
FIELD(ModelInfo, n_embd, 120);
FIELD(ModelInfo, n_layer, 124);
FIELD(ModelInfo, n_head, 128);
FIELD(ModelInfo, n_head_kv, 132);
FIELD(ModelInfo, n_gpu_layers, 136);
FIELD(ModelInfo, n_swa, 140);
FIELD(ModelInfo, memory_kind, 144);
FIELD(ModelInfo, bos, 148);
FIELD(ModelInfo, eos, 152);
FIELD(ModelInfo, eot, 156);
FIELD(ModelInfo, add_bos, 160);
FIELD(ModelInfo, has_encoder, 161);
FIELD(ModelInfo, chat_template, 168);
FIELD(ModelInfo, metadata, 200);

SIZE(MemoryShortage, 24);
FIELD(MemoryShortage, need, 0);
FIELD(MemoryShortage, have, 8);
FIELD(MemoryShortage, n_ctx, 16);
FIELD(MemoryShortage, max_concurrent, 20);

SIZE(LogLine, 40);
FIELD(LogLine, level, 0);
FIELD(LogLine, text, 8);

SIZE(Listener, 24);
FIELD(Listener, mailbox, 0);
FIELD(Listener, key, 16);

SIZE(DeviceMemory, 72);
FIELD(DeviceMemory, device, 0);
FIELD(DeviceMemory, weights, 32);
FIELD(DeviceMemory, kv, 40);
FIELD(DeviceMemory, compute, 48);
FIELD(DeviceMemory, other, 56);
FIELD(DeviceMemory, free, 64);

SIZE(MemoryEstimate, 240);
FIELD(MemoryEstimate, devices, 0);
FIELD(MemoryEstimate, max_concurrent, 24);
FIELD(MemoryEstimate, n_ctx, 28);
FIELD(MemoryEstimate, n_cached, 32);
FIELD(MemoryEstimate, layout, 40);
FIELD(MemoryEstimate, kv, 72);
FIELD(MemoryEstimate, type_k, 104);
FIELD(MemoryEstimate, type_v, 136);
FIELD(MemoryEstimate, max_concurrent_reason, 168);
FIELD(MemoryEstimate, n_ctx_reason, 200);
FIELD(MemoryEstimate, fits, 232);

SIZE(SamplingParams, 80);
FIELD(SamplingParams, temperature, 0);
FIELD(SamplingParams, top_k, 4);
FIELD(SamplingParams, top_p, 8);
FIELD(SamplingParams, min_p, 12);
FIELD(SamplingParams, repeat_penalty, 16);
FIELD(SamplingParams, frequency_penalty, 20);
FIELD(SamplingParams, presence_penalty, 24);
FIELD(SamplingParams, penalty_last_n, 28);
FIELD(SamplingParams, seed, 32);
FIELD(SamplingParams, logit_bias, 48);
FIELD(SamplingParams, ignore_eos, 72);

SIZE(GenerationParams, 216);
FIELD(GenerationParams, sampling, 0);
FIELD(GenerationParams, max_tokens, 80);
FIELD(GenerationParams, stop, 88);
FIELD(GenerationParams, logprobs, 112);
FIELD(GenerationParams, cache, 116);
FIELD(GenerationParams, grammar, 120);
FIELD(GenerationParams, json_schema, 152);
FIELD(GenerationParams, cache_scope, 184);

SIZE(PoolOptions, 208);
FIELD(PoolOptions, layout, 0);
FIELD(PoolOptions, kv, 32);
FIELD(PoolOptions, n_ctx, 64);
FIELD(PoolOptions, n_batch, 72);
FIELD(PoolOptions, n_threads, 80);
FIELD(PoolOptions, flash_attention, 88);
FIELD(PoolOptions, type_k, 120);
FIELD(PoolOptions, type_v, 152);
FIELD(PoolOptions, n_cached, 184);
FIELD(PoolOptions, cache_tokens, 192);
FIELD(PoolOptions, max_step_ms, 200);

SIZE(SchedulerOptions, 40);
FIELD(SchedulerOptions, max_concurrent, 0);
FIELD(SchedulerOptions, max_waiting, 4);
FIELD(SchedulerOptions, ageing_seconds, 16);
FIELD(SchedulerOptions, clock, 24);

SIZE(AcquireOptions, 16);
FIELD(AcquireOptions, priority, 0);
FIELD(AcquireOptions, owner, 8);

SIZE(Statistics, 640);
FIELD(Statistics, max_concurrent, 0);
FIELD(Statistics, max_concurrent_reason, 8);
FIELD(Statistics, active, 40);
FIELD(Statistics, waiting, 44);
FIELD(Statistics, high_water, 48);
FIELD(Statistics, acquired, 56);
FIELD(Statistics, released, 64);
FIELD(Statistics, timed_out, 72);
FIELD(Statistics, abandoned, 80);
FIELD(Statistics, wait_seconds, 88);
FIELD(Statistics, layout, 96);
FIELD(Statistics, kv, 128);
FIELD(Statistics, kv_reason, 160);
FIELD(Statistics, flash_attention, 192);
FIELD(Statistics, flash_attention_reason, 224);
FIELD(Statistics, type_k, 256);
FIELD(Statistics, type_v, 288);
FIELD(Statistics, kv_type_reason, 320);
FIELD(Statistics, n_lanes, 352);
FIELD(Statistics, n_ctx, 356);
FIELD(Statistics, n_ctx_reason, 360);
FIELD(Statistics, n_cached, 392);
FIELD(Statistics, n_cached_reason, 400);
FIELD(Statistics, memory_bytes, 432);
FIELD(Statistics, running, 440);
FIELD(Statistics, cached_sequences, 444);
FIELD(Statistics, kv_tokens, 448);
FIELD(Statistics, kv_cells, 456);
FIELD(Statistics, generations, 464);
FIELD(Statistics, completed, 472);
FIELD(Statistics, cancelled, 480);
FIELD(Statistics, failed, 488);
FIELD(Statistics, prompt_tokens, 496);
FIELD(Statistics, reused_tokens, 504);
FIELD(Statistics, evaluated_tokens, 512);
FIELD(Statistics, completion_tokens, 520);
FIELD(Statistics, prefix_hits, 528);
FIELD(Statistics, reuse_refused, 536);
FIELD(Statistics, reuse_refused_reason, 544);
FIELD(Statistics, steps, 576);
FIELD(Statistics, step_tokens_mean, 584);
FIELD(Statistics, step_tokens_max, 592);
FIELD(Statistics, n_threads, 596);
FIELD(Statistics, step_seconds_p50, 600);
FIELD(Statistics, step_seconds_p99, 608);
FIELD(Statistics, step_seconds_max, 616);
FIELD(Statistics, seconds_since_progress, 624);
FIELD(Statistics, healthy, 632);

SIZE(InferenceEngine, 32);
SIZE(Error, 24);
SIZE(InvalidArgumentError, 24);
SIZE(ModelLoadError, 24);
SIZE(InsufficientMemoryError, 48);
SIZE(ContextOverflowError, 24);
SIZE(AcquireTimeout, 24);
SIZE(QueueFullError, 24);
SIZE(SchedulerClosedError, 24);
SIZE(PermitReleasedError, 24);
SIZE(PermitBusyError, 24);
SIZE(DeadlockError, 24);
SIZE(GrammarError, 24);
SIZE(BackendError, 24);
SIZE(ForkedProcessError, 24);
SIZE(GenerationCancelled, 24);
SIZE(PoolNotInitialisedError, 24);
SIZE(Generation, 32);
SIZE(Mailbox, 8);
SIZE(InferencePermit, 16);
SIZE(Ticket, 32);
SIZE(InferenceScheduler, 16);

VALUE(FinishReason, kStop, 0);
VALUE(FinishReason, kLength, 1);
VALUE(FinishReason, kToolCalls, 2);
VALUE(FinishReason, kCancelled, 3);

VALUE(MemoryKind, kNone, 0);
VALUE(MemoryKind, kPlain, 1);
VALUE(MemoryKind, kSlidingWindow, 2);
VALUE(MemoryKind, kRecurrent, 3);
VALUE(MemoryKind, kHybrid, 4);

VALUE(ErrorCode, kError, 0);
VALUE(ErrorCode, kInvalidArgument, 1);
VALUE(ErrorCode, kModelLoad, 2);
VALUE(ErrorCode, kInsufficientMemory, 3);
VALUE(ErrorCode, kContextOverflow, 4);
VALUE(ErrorCode, kAcquireTimeout, 5);
VALUE(ErrorCode, kQueueFull, 6);
VALUE(ErrorCode, kSchedulerClosed, 7);
VALUE(ErrorCode, kPermitReleased, 8);
VALUE(ErrorCode, kPermitBusy, 9);
VALUE(ErrorCode, kDeadlock, 10);
VALUE(ErrorCode, kGrammar, 11);
VALUE(ErrorCode, kBackend, 12);
VALUE(ErrorCode, kForkedProcess, 13);
VALUE(ErrorCode, kGenerationCancelled, 14);
VALUE(ErrorCode, kPoolNotInitialised, 15);

VALUE(StreamStatus, kPiece, 0);
VALUE(StreamStatus, kEnd, 1);
VALUE(StreamStatus, kTimeout, 2);

VALUE(LogLevel, kDebug, 0);
VALUE(LogLevel, kInfo, 1);
VALUE(LogLevel, kWarning, 2);
VALUE(LogLevel, kError, 3);

VALUE(TicketStatus, kWaiting, 0);
VALUE(TicketStatus, kGranted, 1);
VALUE(TicketStatus, kCancelled, 2);
VALUE(TicketStatus, kClosed, 3);

}  // namespace pronk

#endif
