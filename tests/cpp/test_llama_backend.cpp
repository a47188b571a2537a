#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.h"
#include "engine_impl.h"
#include "gguf_builder.h"
#include "pronk/engine.h"
#include "pronk/error.h"
#include "pronk/log.h"

namespace {

using pronk::Backend;
using pronk::BackendOptions;
using pronk::BatchItem;
using pronk::DecodeStatus;
using pronk::InferenceEngine;
using pronk::LoadOptions;
using pronk::Token;

std::shared_ptr<InferenceEngine> load(const gguf::TinyModel& model = {},
                                      const LoadOptions& options = {}) {
  const gguf::TempFile file(gguf::tiny_model(model).bytes());
  return InferenceEngine::load(file.path(), options);
}

BackendOptions small(std::int32_t n_seq = 1) {
  BackendOptions options;
  options.n_seq = n_seq;
  options.n_ctx_seq = 256;
  options.n_ctx_total = 256;
  options.n_batch = 64;
  options.n_outputs = n_seq;
  return options;
}

std::unique_ptr<Backend> open(InferenceEngine& engine, const BackendOptions& options) {
  return engine.impl().make_backend(options, nullptr);
}

/// Decodes `n` tokens of a fixed text at positions from `first` on, and returns the last one's
/// logits.
std::vector<float> feed(Backend& backend, std::int32_t seq, std::int32_t first, std::int32_t n) {
  std::vector<BatchItem> items;
  for (std::int32_t i = 0; i < n; ++i)
    items.push_back({(first + i) * 37 % 251, first + i, seq, i + 1 == n});
  if (!CHECK_EQ(backend.decode(items), DecodeStatus::kOk)) return {};
  const std::span<const float> row = backend.logits(n - 1);
  return {row.begin(), row.end()};
}

/// Equal but for the rounding that another batch size brings.
void check_close(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size() && !a.empty());
  float worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  CHECK(worst < 1e-2f);
}

bool differ(const std::vector<float>& a, const std::vector<float>& b) {
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (std::abs(a[i] - b[i]) > 0.1f) return true;
  }
  return false;
}

/// The message of an error of that type.
template <class E, class Call>
void check_error(Call&& call, const std::string& part) {
  const auto message = check::message_of<E>(call);
  if (CHECK(message.has_value()) && message->find(part) == std::string::npos)
    CHECK_EQ(*message, part);
}

}  // namespace

TEST(llama_engine_describes_the_model) {
  const auto engine = load();
  const pronk::ModelInfo& info = engine->info();
  CHECK_EQ(info.architecture, std::string("llama"));
  CHECK_EQ(info.n_vocab, 258);
  CHECK_EQ(info.n_ctx_train, 1024);
  CHECK_EQ(info.n_embd, 32);
  CHECK_EQ(info.n_layer, 1);
  CHECK_EQ(info.bos, 256);
  CHECK_EQ(info.eos, 257);
  CHECK(info.add_bos);
  CHECK(info.memory_kind == pronk::MemoryKind::kPlain);
  CHECK_EQ(info.metadata.at("general.name"), std::string("tiny"));
  CHECK(engine->is_eog(257));
  CHECK(!engine->is_eog(0));
  CHECK(!engine->is_eog(-1));
  CHECK(!engine->devices().empty());
}

TEST(llama_engine_tokenizes_and_back) {
  const auto engine = load();
  const std::string text = std::string("Grüße, 世界 \n\t") + '\0' + "end";
  CHECK_EQ(engine->tokenize("Hi"), (std::vector<Token>{256, 'H', 'i'}));
  CHECK_EQ(engine->tokenize("", true), std::vector<Token>{256});
  CHECK_EQ(engine->tokenize("", false), std::vector<Token>{});
  CHECK_EQ(engine->detokenize(engine->tokenize(text)), text);
  CHECK_EQ(engine->detokenize({256, 'a'}, true), std::string("<bos>a"));
  CHECK_EQ(engine->tokenize("<eos>", false, true), std::vector<Token>{257});
  CHECK_EQ(engine->tokenize("<eos>", false, false).size(), 5u);
  CHECK_THROWS(pronk::InvalidArgumentError, engine->tokenize("\xff"));
  CHECK_THROWS(pronk::InvalidArgumentError, engine->tokenize("\xed\xa0\x80"));
  CHECK_THROWS(pronk::InvalidArgumentError, engine->detokenize({258}));
  CHECK_THROWS(pronk::InvalidArgumentError, engine->detokenize({-1}));
}

// The regular expressions of "default" and "gpt-4o" recurse once per character: on an ordinary
// stack 100 kB are too many.
TEST(llama_engine_tokenizes_long_stretches) {
  for (const char* pre_tokenizer : {"default", "gpt-4o"}) {
    gguf::TinyModel model;
    model.pre_tokenizer = pre_tokenizer;
    const auto engine = load(model);
    for (const char character : {'\n', ' ', 'a', '!'}) {
      const std::string text(200'000, character);
      CHECK_EQ(engine->detokenize(engine->tokenize(text, false)).size(), text.size());
    }
  }
  check_error<pronk::InvalidArgumentError>(
      [] { load()->tokenize(std::string((1 << 20) + 1, 'a')); }, "stretch");
}

TEST(llama_engine_reports_progress) {
  std::vector<float> seen;
  LoadOptions options;
  options.progress = [&](float fraction) {
    seen.push_back(fraction);
    return true;
  };
  gguf::TinyModel model;
  model.n_layers = 30;  // some 300 tensors
  load(model, options);
  CHECK(!seen.empty() && seen.size() <= 101);
  CHECK(std::is_sorted(seen.begin(), seen.end()));
  CHECK_EQ(seen.back(), 1.0f);

  options.progress = [](float) { return false; };
  check_error<pronk::ModelLoadError>([&] { load({}, options); }, "cancelled");
  struct Mine {};
  options.progress = [](float) -> bool { throw Mine{}; };
  CHECK_THROWS(Mine, load({}, options));
}

TEST(llama_engine_refuses_unusable_models) {
  gguf::TinyModel model;
  model.weights = false;
  check_error<pronk::ModelLoadError>([&] { load(model); }, "no weights");
  LoadOptions options;
  options.vocab_only = true;
  const auto vocabulary = load(model, options);
  CHECK_EQ(vocabulary->tokenize("a", false), std::vector<Token>{'a'});
  check_error<pronk::InvalidArgumentError>([&] { open(*vocabulary, small()); }, "vocab_only");

  model = {};
  model.tokenizer = false;
  check_error<pronk::ModelLoadError>([&] { load(model); }, "tokenizer");

  gguf::Builder lacking = gguf::tiny_model();
  lacking.text("general.basename", "x");
  std::string bytes = lacking.bytes();
  bytes.replace(bytes.find("output_norm"), 11, "output_nork");  // llama.cpp misses a tensor
  const gguf::TempFile file(bytes);
  check_error<pronk::ModelLoadError>([&] { InferenceEngine::load(file.path()); }, "output_norm");
}

TEST(llama_engine_says_why_there_is_no_gpu) {
  const auto devices = pronk::devices();
  REQUIRE(!devices.empty());
  CHECK_EQ(devices.back().kind, std::string("cpu"));
  LoadOptions options;
  options.n_gpu_layers = -2;
  check_error<pronk::InvalidArgumentError>([&] { load({}, options); }, "got -2");
  options.n_gpu_layers = 0;
  CHECK_EQ(load({}, options)->info().n_gpu_layers, 0);
  if (devices.front().kind != "cpu") return;
  for (const std::int32_t layers : {-1, 1}) {
    options.n_gpu_layers = layers;
    check_error<pronk::InvalidArgumentError>([&] { load({}, options); }, "n_gpu_layers 0");
  }
}

#if defined(__GNUC__)
namespace {
// As it was before the initialisers of ggml, one of which would install a handler that starts a
// debugger. It is in an object file that nothing refers to, so that a static link leaves it out.
std::terminate_handler handler_at_start = nullptr;
__attribute__((constructor(101))) void remember_handler() {
  handler_at_start = std::get_terminate();
}
}  // namespace

TEST(llama_engine_leaves_the_terminate_handler) {
  load();
  CHECK(std::get_terminate() == handler_at_start);
}
#endif

TEST(llama_log_is_kept_for_the_program) {
  pronk::drain_log();
  load();
  const auto lines = pronk::drain_log();
  CHECK(!lines.empty());
  CHECK(lines.size() <= 1025);
  for (const pronk::LogLine& line : lines) {
    CHECK(!line.text.empty() && line.text.find('\n') == std::string::npos);
    CHECK(line.level >= pronk::LogLevel::kInfo);
  }
  pronk::set_log_level(pronk::LogLevel::kError);
  load();
  CHECK(pronk::drain_log().empty());
  pronk::set_log_level(pronk::LogLevel::kInfo);
}

TEST(llama_backend_gives_logits_of_outputs_only) {
  const auto engine = load();
  const auto backend = open(*engine, small(2));
  CHECK_EQ(backend->n_vocab(), 258);
  CHECK_EQ(backend->n_seq(), 2);
  CHECK_EQ(backend->n_batch(), 64);
  const std::vector<BatchItem> items = {{1, 0, 0, false}, {2, 1, 0, true}, {3, 0, 1, true}};
  REQUIRE(backend->decode(items) == DecodeStatus::kOk);
  CHECK(backend->logits(0).empty());
  CHECK(backend->logits(-1).empty());
  CHECK(backend->logits(3).empty());
  REQUIRE(backend->logits(1).size() == 258 && backend->logits(2).size() == 258);
  for (const float value : backend->logits(1)) CHECK(std::isfinite(value));
  CHECK_EQ(backend->seq_pos_max(0), 1);
  CHECK_EQ(backend->seq_pos_max(1), 0);
  CHECK_EQ(backend->seq_pos_min(0), 0);
}

TEST(llama_backend_refuses_bad_batches_and_goes_on) {
  const auto engine = load();
  const auto reference = open(*engine, small(2));
  const auto backend = open(*engine, small(2));
  const auto status = [&](std::vector<BatchItem> items) { return backend->decode(items); };
  feed(*backend, 0, 0, 4);
  CHECK_EQ(status({}), DecodeStatus::kInvalidBatch);
  CHECK_EQ(status({{-1, 4, 0, true}}), DecodeStatus::kInvalidBatch);
  CHECK_EQ(status({{258, 4, 0, true}}), DecodeStatus::kInvalidBatch);
  CHECK_EQ(status({{1, -1, 0, true}}), DecodeStatus::kInvalidBatch);
  CHECK_EQ(status({{1, 4, 2, true}}), DecodeStatus::kInvalidBatch);
  CHECK_EQ(status({{1, 4, -1, true}}), DecodeStatus::kInvalidBatch);
  CHECK_EQ(status({{1, 9, 0, true}}), DecodeStatus::kInvalidBatch);  // leaves a gap
  CHECK_EQ(status(std::vector<BatchItem>(65, {1, 4, 0, false})), DecodeStatus::kInvalidBatch);
  CHECK_EQ(status({{1, 4, 0, true}, {1, 5, 0, true}, {1, 6, 0, true}}),
           DecodeStatus::kInvalidBatch);  // outputs
  CHECK(backend->logits(0).empty());
  CHECK_EQ(backend->seq_pos_max(0), 3);
  feed(*reference, 0, 0, 4);
  check_close(feed(*backend, 0, 4, 1), feed(*reference, 0, 4, 1));
}

TEST(llama_backend_rolls_back_and_copies) {
  const auto engine = load();
  for (const bool unified : {true, false}) {
    BackendOptions options = small(3);
    options.kv_unified = unified;
    const auto backend = open(*engine, options);
    const std::vector<float> straight = feed(*backend, 0, 0, 20);

    CHECK(backend->seq_remove(0, 10, -1));
    CHECK_EQ(backend->seq_pos_max(0), 9);
    check_close(feed(*backend, 0, 10, 10), straight);

    feed(*backend, 1, 0, 5);  // replaced by the copy
    backend->seq_copy(0, 1, 0, 12);
    CHECK_EQ(backend->seq_pos_max(1), 11);
    check_close(feed(*backend, 1, 12, 8), straight);
    CHECK(differ(feed(*backend, 2, 0, 8), straight));  // that they are alike is not in the model

    CHECK(backend->seq_remove(0, -1, -1));
    CHECK_EQ(backend->seq_pos_max(0), -1);
    CHECK_EQ(backend->seq_pos_min(0), -1);
    CHECK_EQ(backend->seq_pos_max(1), 19);
    CHECK(!backend->seq_remove(3, -1, -1));
    CHECK_EQ(backend->seq_pos_max(-1), -1);
    CHECK_THROWS(pronk::InvalidArgumentError, backend->seq_copy(0, 3, -1, -1));
  }
}

TEST(llama_backend_reports_a_full_cache) {
  const auto engine = load();
  const auto backend = open(*engine, small(2));
  for (std::int32_t pos = 0; pos < 256; pos += 64) feed(*backend, 0, pos, 64);
  const std::vector<BatchItem> one_more = {{1, 0, 1, true}};
  CHECK_EQ(backend->decode(one_more), DecodeStatus::kNoSlot);
  CHECK(backend->logits(0).empty());
  CHECK_EQ(backend->seq_pos_max(1), -1);
  CHECK(backend->seq_remove(0, 100, -1));
  CHECK_EQ(backend->decode(one_more), DecodeStatus::kOk);
}

TEST(llama_backend_aborts) {
  const auto engine = load();
  const auto backend = open(*engine, small());
  backend->abort(true);
  const std::vector<BatchItem> items = {{1, 0, 0, true}};
  CHECK_EQ(backend->decode(items), DecodeStatus::kAborted);
  backend->abort(false);
  CHECK_EQ(backend->decode(items), DecodeStatus::kOk);
}

TEST(llama_backends_share_threads) {
  const auto engine = load();
  const auto threads = engine->impl().make_threads(2);
  BackendOptions options = small();
  options.n_threads = 2;
  const auto a = engine->impl().make_backend(options, threads);
  const auto b = engine->impl().make_backend(options, threads);
  for (std::int32_t pos = 0; pos < 40; pos += 8)
    check_close(feed(*a, 0, pos, 8), feed(*b, 0, pos, 8));
  options.n_threads = 1;
  check_error<pronk::InvalidArgumentError>([&] { engine->impl().make_backend(options, threads); },
                                           "n_threads");
  CHECK_THROWS(pronk::InvalidArgumentError, engine->impl().make_threads(0));
  CHECK_THROWS(pronk::InvalidArgumentError, engine->impl().make_threads(513));
}

TEST(llama_backend_checks_its_options) {
  const auto engine = load();
  const auto check = [&](auto change, const std::string& part) {
    BackendOptions options = small(2);
    change(options);
    check_error<pronk::InvalidArgumentError>([&] { open(*engine, options); }, part);
  };
  check([](BackendOptions& o) { o.n_seq = 0; }, "n_seq: got 0");
  check([](BackendOptions& o) { o.n_seq = 257; }, "n_seq: got 257");
  check([](BackendOptions& o) { o.n_ctx_seq = 0; }, "n_ctx: got 0");
  check([](BackendOptions& o) { o.n_ctx_seq = -1; }, "n_ctx: got -1");
  check([](BackendOptions& o) { o.n_batch = 0; }, "n_batch: got 0");
  check([](BackendOptions& o) { o.n_batch = 1; }, "n_batch: got 1");
  check([](BackendOptions& o) { o.n_outputs = 0; }, "n_outputs: got 0");
  check([](BackendOptions& o) { o.n_outputs = 65; }, "n_outputs: got 65");
  check([](BackendOptions& o) { o.n_threads = 0; }, "n_threads: got 0");
  check([](BackendOptions& o) { o.type_k = "q3_k"; }, "type_k: got 'q3_k'");
  check([](BackendOptions& o) { o.flash_attention = "maybe"; }, "flash_attention: got 'maybe'");
  check(
      [](BackendOptions& o) {
        o.type_v = "q8_0";
        o.flash_attention = "off";
      },
      "without flash attention");
  check(
      [](BackendOptions& o) {
        o.kv_unified = false;
        o.n_ctx_seq = 1 << 30;
      },
      "n_ctx of all sequences");
}

TEST(llama_backend_runs_with_every_cache_type) {
  const auto engine = load();
  const std::vector<float> expected = feed(*open(*engine, small()), 0, 0, 16);
  for (const char* type : {"f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"}) {
    BackendOptions options = small();
    options.type_k = options.type_v = type;
    const std::vector<float> row = feed(*open(*engine, options), 0, 0, 16);
    CHECK_EQ(row.size(), expected.size());
  }
}

// The other memory types need models that only the Python suite writes: PRONK_TINY_DIR names a
// directory of them.
TEST(llama_backend_knows_the_limits_of_each_memory) {
  const char* directory = std::getenv("PRONK_TINY_DIR");
  if (directory == nullptr) return;
  const auto tiny = [&](const std::string& kind) {
    return InferenceEngine::load(
        (std::filesystem::path(directory) / ("tiny-" + kind + "-0.gguf")).string());
  };
  const auto windowed = tiny("swa");
  CHECK(windowed->info().memory_kind == pronk::MemoryKind::kSlidingWindow);
  CHECK_EQ(windowed->info().n_swa, 16);
  const auto backend = open(*windowed, small(2));
  const std::vector<float> straight = feed(*backend, 0, 0, 60);
  CHECK_EQ(backend->seq_pos_min(0), 0);  // nothing is forgotten behind the window
  CHECK(backend->seq_remove(0, 20, -1));
  check_close(feed(*backend, 0, 20, 40), straight);
  backend->seq_copy(0, 1, 0, 30);
  check_close(feed(*backend, 1, 30, 30), straight);

  for (const char* kind : {"recurrent", "hybrid", "rollback"}) {
    const auto engine = tiny(kind);
    CHECK(engine->info().memory_kind == (kind == std::string("recurrent")
                                             ? pronk::MemoryKind::kRecurrent
                                             : pronk::MemoryKind::kHybrid));
    const auto state = open(*engine, small(2));
    feed(*state, 0, 0, 20);
    CHECK(!state->seq_remove(0, 10, -1));
    CHECK_THROWS(pronk::InvalidArgumentError, state->seq_copy(0, 1, 0, 10));
    state->seq_copy(0, 1, 0, 20);
    CHECK_EQ(state->seq_pos_max(1), 19);
    check_close(feed(*state, 1, 20, 4), feed(*state, 0, 20, 4));
    CHECK(state->seq_remove(0, -1, -1));
    CHECK_EQ(state->seq_pos_max(0), -1);
  }
  check_error<pronk::InvalidArgumentError>([&] { open(*tiny("encoder"), small()); },
                                           "causal language model");
}
