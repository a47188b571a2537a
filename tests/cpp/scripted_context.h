// Contexts of a scripted model, and how to decode with one by hand.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "check.h"
#include "engine_impl.h"
#include "pronk/testing.h"

namespace scripted {

using namespace std::chrono_literals;
using pronk::Backend;
using pronk::BackendOptions;
using pronk::BatchItem;
using pronk::DecodeStatus;
using pronk::MemoryKind;
using pronk::Token;
using pronk::testing::Fault;
using pronk::testing::FaultKind;
using pronk::testing::FaultPoint;
using pronk::testing::ScriptedModel;
using pronk::testing::ScriptedOptions;
using Tokens = std::vector<Token>;

constexpr auto kHangGuard = 60s;

inline ScriptedOptions of_kind(MemoryKind kind) {
  ScriptedOptions options;
  options.memory_kind = kind;
  options.n_swa = kind == MemoryKind::kSlidingWindow ? 4 : 0;
  return options;
}

inline std::unique_ptr<Backend> make(ScriptedModel& model, int n_seq = 2, bool unified = true,
                                     int n_ctx = 64) {
  BackendOptions options;
  options.n_seq = n_seq;
  options.n_ctx_seq = n_ctx;
  options.n_ctx_total = unified ? n_ctx : 0;
  options.n_batch = 32;
  options.n_outputs = 4;
  options.kv_unified = unified;
  return model.engine()->impl().make_backend(options, nullptr);
}

inline Tokens tokens(const std::string& text) { return {text.begin(), text.end()}; }

inline std::vector<BatchItem> items(int seq, int pos, const Tokens& tokens) {
  std::vector<BatchItem> batch;
  for (const Token token : tokens) batch.push_back({token, pos++, seq, false});
  batch.back().output = true;
  return batch;
}

inline Token best(std::span<const float> row) {
  return static_cast<Token>(std::max_element(row.begin(), row.end()) - row.begin());
}

/// Decodes `text` at `pos`, then `n` tokens greedily. The last is not decoded.
inline Tokens greedy(Backend& backend, int seq, int pos, const Tokens& text, int n) {
  Tokens result;
  Tokens next = text;
  while (static_cast<int>(result.size()) < n) {
    const auto batch = items(seq, pos, next);
    CHECK(backend.decode(batch) == DecodeStatus::kOk);
    pos += static_cast<int>(next.size());
    result.push_back(best(backend.logits(static_cast<int>(batch.size()) - 1)));
    next = {result.back()};
  }
  return result;
}

}  // namespace scripted
