#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <random>
#include <string>

#include "check.h"
#include "gguf_builder.h"
#include "gguf_check.h"
#include "pronk/error.h"

#if !defined(_WIN32)
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace {

using gguf::Builder;
using gguf::TempFile;

/// float, half, one quantised type, and whole numbers.
pronk::TensorLayout layout_of(std::uint32_t type) {
  switch (type) {
    case 0:
      return {1, 4};
    case 1:
      return {1, 2};
    case 2:
      return {32, 18};
    case 26:
      return {1, 4};
    default:
      return {};
  }
}

pronk::GgufSummary inspect(const std::string& bytes) {
  const TempFile file(bytes);
  return pronk::check_gguf(file.path(), layout_of);
}

/// The file is refused for its content, and the message contains `part`.
void check_refused(const std::string& bytes, const std::string& part) {
  try {
    inspect(bytes);
  } catch (const pronk::ModelLoadError& error) {
    CHECK_EQ(error.os_errno(), 0);
    const std::string message = error.what();
    if (message.find(part) == std::string::npos) CHECK_EQ(message, part);
    return;
  }
  CHECK_EQ(std::string("accepted"), part);
}

/// A sound file with one more thing in it.
std::string with(const std::function<void(Builder&)>& change) {
  Builder file = gguf::tiny_model();
  change(file);
  return file.bytes();
}

void check_unreadable(const std::string& path, int expected_errno) {
  try {
    pronk::check_gguf(path, layout_of);
  } catch (const pronk::ModelLoadError& error) {
    CHECK_EQ(error.os_errno(), expected_errno);
    return;
  }
  CHECK(!"accepted");
}

}  // namespace

TEST(gguf_check_accepts_a_sound_file) {
  const pronk::GgufSummary summary = inspect(gguf::tiny_model().bytes());
  CHECK_EQ(summary.architecture, std::string("llama"));
  CHECK_EQ(summary.n_tensors, 12u);
  CHECK_EQ(summary.split_count, 1u);
  CHECK(summary.has_tokenizer);
}

TEST(gguf_check_names_what_is_no_file) {
  check_unreadable("", EINVAL);
  check_unreadable(std::string("a\0b", 3), EINVAL);
  const TempFile file("");
  check_unreadable(file.path() + ".missing", ENOENT);
  check_unreadable(std::filesystem::temp_directory_path().string(), EISDIR);
#if !defined(_WIN32)
  // Opening it would wait for a writer.
  const std::string pipe = file.path() + ".pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  check_unreadable(pipe, EINVAL);
  unlink(pipe.c_str());
  if (geteuid() != 0) {  // root reads everything
    chmod(file.path().c_str(), 0);
    check_unreadable(file.path(), EACCES);
  }
#endif
}

TEST(gguf_check_tells_other_content) {
  check_refused("", "empty file");
  check_refused("GG", "starts with 'GG");
  check_refused("Hello, this is a text.", "starts with 'Hell'");
  check_refused(
      "\x7f"
      "ELF....",
      "'\\x7fELF'");
  Builder old;
  old.version = 1;
  check_refused(old.bytes(), "version 1");
  Builder future;
  future.version = 4;
  check_refused(future.bytes(), "update pronk");
  Builder swapped;
  swapped.version = 0x03000000;
  check_refused(swapped.bytes(), "byte order");
}

TEST(gguf_check_refuses_every_truncation) {
  const std::string whole = gguf::tiny_model().bytes();
  const std::size_t header = whole.find("token_embd.weight");
  REQUIRE(header != std::string::npos);
  const TempFile file(whole);
  // In big steps through the data, then every few bytes of the header. The last tensor is padded by
  // no more than 31 bytes, which are nobody's.
  std::size_t accepted = 0;
  for (std::size_t size = whole.size() - 32; size > 0;
       size -= std::min<std::size_t>(size, size > header ? 997 : 3)) {
    std::filesystem::resize_file(file.path(), size);
    try {
      pronk::check_gguf(file.path(), layout_of);
      ++accepted;
    } catch (const pronk::ModelLoadError&) {
    }
  }
  CHECK_EQ(accepted, 0u);
}

TEST(gguf_check_bounds_every_count) {
  const std::uint64_t huge = std::uint64_t{1} << 62;
  std::string bytes = gguf::tiny_model().bytes();
  bytes.replace(8, 8, Builder::raw(huge));
  check_refused(bytes, "number of tensors");
  bytes = gguf::tiny_model().bytes();
  bytes.replace(16, 8, Builder::raw(huge));
  check_refused(bytes, "number of key/value pairs");
  bytes.replace(16, 8, Builder::raw(std::uint64_t(-1)));
  check_refused(bytes, "number of key/value pairs");
  check_refused(with([&](Builder& b) { b.add("k", 8, Builder::raw(huge)); }), "string of");
  check_refused(with([&](Builder& b) { b.add("k", 8, Builder::raw(std::uint64_t{1} << 29)); }),
                "too few");
  check_refused(
      with([&](Builder& b) { b.add("k", 9, Builder::raw(std::uint32_t{4}) + Builder::raw(huge)); }),
      "elements in array 'k'");
  check_refused(
      with([&](Builder& b) { b.add("k", 9, Builder::raw(std::uint32_t{8}) + Builder::raw(huge)); }),
      "elements in array 'k'");
}

TEST(gguf_check_refuses_bad_pairs) {
  check_refused(with([](Builder& b) { b.add("", 4, Builder::raw(1)); }), "empty key");
  check_refused(with([](Builder& b) { b.add("k", 13, ""); }), "type 13");
  check_refused(with([](Builder& b) { b.text("general.name", "again"); }), "'general.name' twice");
  const std::string nested = Builder::raw(std::uint32_t{9}) + Builder::raw(std::uint64_t{0});
  check_refused(with([&](Builder& b) { b.add("k", 9, nested); }), "element type 9");
  check_refused(with([](Builder& b) { b.number("general.alignment", 24); }), "general.alignment");
  check_refused(with([](Builder& b) { b.number("general.alignment", 0); }), "general.alignment");
  check_refused(with([](Builder& b) { b.number("general.alignment", 16); }), "general.alignment");
  check_refused(with([](Builder& b) { b.number16("general.alignment", 32); }), "general.alignment");
  check_refused(with([](Builder& b) { b.number("split.no", 0); }), "split.no");
}

TEST(gguf_check_refuses_bad_tensors) {
  const std::string data(64, '\0');
  const auto tensor = [&](std::vector<std::uint64_t> dims, std::uint32_t type, std::int64_t shift) {
    return with([&](Builder& b) {
      b.tensor("extra", dims, type, b.data_size() + static_cast<std::uint64_t>(shift), data);
    });
  };
  CHECK_EQ(inspect(tensor({16}, 0, 0)).n_tensors, 13u);
  check_refused(tensor({1, 1, 1, 1, 1}, 0, 0), "5 dimensions");
  check_refused(tensor({0}, 0, 0), "dimension 0");
  check_refused(tensor({std::uint64_t{1} << 32, std::uint64_t{1} << 32}, 0, 0), "dimension");
  check_refused(tensor({std::uint64_t(-1)}, 0, 0), "dimension");
  check_refused(tensor({16}, 99, 0), "type 99");
  check_refused(tensor({33}, 2, 0), "multiple of 32");
  check_refused(tensor({16}, 0, 32), "offset");
  check_refused(tensor({16}, 0, 1), "offset");
  check_refused(tensor({17}, 0, 0), "truncated");  // four bytes more than there are
  check_refused(with([&](Builder& b) { b.tensor("output.weight", {16}, 0, b.data_size(), data); }),
                "twice");
  check_refused(
      with([&](Builder& b) { b.tensor(std::string(64, 'x'), {16}, 0, b.data_size(), data); }),
      "64 bytes");
}

TEST(gguf_check_refuses_what_llama_cpp_would_abort_on) {
  const auto layers = [](std::uint32_t n) {
    Builder file;
    file.text("general.architecture", "llama");
    file.number("llama.block_count", n);
    return file.bytes();
  };
  CHECK_EQ(inspect(layers(512)).n_tensors, 0u);
  check_refused(layers(0), "block_count = 0");
  check_refused(layers(513), "block_count = 513");
  check_refused(with([](Builder& b) { b.number("llama.expert_count", 4); }), "expert_used_count");
  check_refused(with([](Builder& b) { b.number("llama.expert_used_count", 4); }),
                "expert_used_count");
  check_refused(with([](Builder& b) { b.text("llama.rope.scaling.type", "spiral"); }), "'spiral'");
  check_refused(with([](Builder& b) { b.real("llama.attention.layer_norm_epsilon", -1.0f); }),
                "epsilon");
  check_refused(with([](Builder& b) { b.number("llama.nextn_predict_layers", 2); }),
                "nextn_predict_layers");
  check_refused(with([](Builder& b) { b.number("llama.attention.key_length", 16); }),
                "rope.dimension_count");
  Builder vocabulary;
  vocabulary.texts("tokenizer.ggml.tokens", {"a", "b", "a"});
  check_refused(vocabulary.bytes(), "token 2 of the vocabulary twice");
  Builder cut;  // llama.cpp reads up to the NUL
  cut.texts("tokenizer.ggml.tokens", {"a", std::string("a\0b", 3)});
  check_refused(cut.bytes(), "twice");
  Builder named;  // what llama.cpp calls a token without text
  named.texts("tokenizer.ggml.tokens", {"[EMPTY_1]", ""});
  check_refused(named.bytes(), "twice");
  for (const std::uint32_t type : {1u, 2u}) {
    const auto row = [&](const std::string& name, std::vector<std::uint64_t> dims) {
      return with([&](Builder& b) {
        b.tensor(name, dims, type, b.data_size(), std::string(type == 1 ? 64 : 18, '\0'));
      });
    };
    check_refused(row("n.weight", {32}), "tensor 'n.weight'");
    inspect(row("n.weight", {32, 1}));  // a matrix
    for (const char* name : {"blk.0.a.bias", "blk.0.ssm_a", "blk.0.ssm_conv1d.weight",
                             "blk.0.ssm_conv1d_q.weight", "blk.0.shortconv.conv.weight"}) {
      check_refused(row(name, {32, 1}), "expected f32");
    }
  }
  for (const std::uint32_t n : {0u, 7u}) {
    check_refused(with([&](Builder& b) { b.number("llama.rope.dimension_count_swa", n); }),
                  "an even number from 2 on");
  }
  const auto whole = [](const std::string& name) {
    return with(
        [&](Builder& b) { b.tensor(name, {8, 2}, 26, b.data_size(), std::string(64, '\0')); });
  };
  check_refused(whole("blk.9.ffn_up.weight"), "expected a type of weights");
  check_refused(whole("blk.9.attn_norm.weight"), "expected f32");
  inspect(whole("blk.9.ffn_gate_tid2eid.weight"));
  for (const char* arch : {"qwen2vl", "paddleocr"}) {
    Builder file;
    file.text("general.architecture", arch);
    check_refused(file.bytes(), "dimension_sections");
    file.integers(std::string(arch) + ".rope.dimension_sections", {0, 0, 0, 0});
    check_refused(file.bytes(), "dimension_sections");
  }
  check_refused(with([](Builder& b) {
                  b.number("llama.attention.sliding_window", 16);
                  b.number("llama.attention.sliding_window_pattern", 1);
                }),
                "sliding_window_pattern = 1");
  Builder words;  // of which one is a byte
  words.text("tokenizer.ggml.model", "bert");
  words.add("tokenizer.ggml.token_type", 9,
            Builder::raw(std::uint32_t{5}) + Builder::raw(std::uint64_t{2}) +
                Builder::raw(std::int32_t{1}) + Builder::raw(std::int32_t{6}));
  check_refused(words.bytes(), "vocabulary of words");
}

// llama.cpp would look for ever for the token that a text begins with.
// Each ends the process with SIGFPE where it is let through.
TEST(gguf_check_refuses_what_llama_cpp_would_divide_by) {
  const auto file_of = [](const std::string& arch, const std::string& key, std::uint32_t value) {
    Builder file;
    file.text("general.architecture", arch);
    file.number(arch + ".embedding_length", 32);
    if (!key.empty()) file.number(arch + "." + key, value);
    return file.bytes();
  };
  for (const char* key : {"ssm.inner_size", "ssm.time_step_rank", "ssm.group_count",
                          "wkv.head_size", "full_attention_interval"}) {
    check_refused(file_of("mamba2", key, 0), std::string(key) + " = 0");
    inspect(file_of("mamba2", key, 1));
  }
  inspect(file_of("plamo2", "ssm.group_count", 0));
  for (const char* arch : {"gemma2", "gemma3", "olmo2", "phimoe", "deepseek2-ocr"}) {
    check_refused(file_of(arch, "attention.head_count", 0), "head_count = 0");
    check_refused(file_of(arch, "", 0), "head_count = 0, or none");
    inspect(file_of(arch, "attention.head_count", 4));
  }
  inspect(file_of("mamba", "attention.head_count", 0));
  Builder keys;
  keys.text("general.architecture", "llama");
  keys.number("llama.attention.head_count", 4);
  keys.number("llama.attention.head_count_kv", 0);
  check_refused(keys.bytes(), "head_count_kv = 0");
  check_refused(file_of("qwen3next", "", 0), "expert_feed_forward_length");
  inspect(file_of("qwen3next", "expert_feed_forward_length", 8));
}

TEST(gguf_check_refuses_what_tokenizes_without_end) {
  const auto rwkv = [](const std::vector<std::string>& tokens) {
    Builder file;
    file.text("tokenizer.ggml.model", "rwkv");
    file.texts("tokenizer.ggml.tokens", tokens);
    return file.bytes();
  };
  inspect(rwkv({"<s>", "<", "\\x00", "\\n", "\\n\\n", "\\x61b", "a", "\\\\", "\\\\x"}));
  check_refused(rwkv({"<s>"}), "the byte 60");
  check_refused(rwkv({"\\n\\n"}), "the byte 10");
  check_refused(rwkv({"\\xe4\\xb8"}), "the byte 228");
  check_refused(rwkv({"\\", "\\x6", "ab"}), "the byte 97");
  // PLaMo's keeps every suffix of every token.
  Builder plamo;
  plamo.text("tokenizer.ggml.model", "plamo2");
  plamo.texts("tokenizer.ggml.tokens", {"a", std::string(100'000, 'x')});
  check_refused(plamo.bytes(), "too long");
  Builder other;
  other.text("tokenizer.ggml.model", "gpt2");
  other.texts("tokenizer.ggml.tokens", {"ab"});
  inspect(other.bytes());
}

TEST(gguf_check_survives_mutants) {
  std::mt19937_64 random(check::seed());
  const std::string sound = gguf::tiny_model().bytes();
  const TempFile file("");
  for (int i = 0; i < 500; ++i) {
    std::string bytes = sound;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
      constexpr unsigned char values[] = {0, 1, 0x7f, 0x80, 0xff};
      bytes[random() % 6000] =
          static_cast<char>(random() % 2 == 0 ? values[random() % 5] : random());
    }
    file.write(bytes);
    try {
      pronk::check_gguf(file.path(), layout_of);
    } catch (const pronk::ModelLoadError&) {
    }
  }
}
