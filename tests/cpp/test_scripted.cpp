// The scripted model: it must allow and refuse what llama.cpp does, and show every wrong reuse in
// its text.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "pronk/error.h"
#include "scripted_context.h"

namespace {

using namespace scripted;

constexpr MemoryKind kAllKinds[] = {MemoryKind::kPlain, MemoryKind::kSlidingWindow,
                                    MemoryKind::kRecurrent, MemoryKind::kHybrid};

}  // namespace

TEST(scripted_greedy_text_is_the_expected_one_in_every_memory) {
  for (const auto kind : kAllKinds) {
    for (const bool unified : {true, false}) {
      ScriptedModel model(of_kind(kind));
      const auto backend = make(model, 2, unified);
      const auto prompt = tokens("hello world");
      CHECK_EQ(greedy(*backend, 1, 0, prompt, 12), model.expected(prompt, 12));
      CHECK(model.violations().empty());
    }
  }
}

TEST(scripted_text_depends_on_every_token_and_on_the_seed) {
  ScriptedModel model;
  ScriptedOptions options;
  options.seed = 1;
  ScriptedModel other(options);
  CHECK(model.expected("hello world", 16) != model.expected("jello world", 16));
  CHECK(model.expected("hello world", 16) != model.expected("hello worle", 16));
  CHECK(model.expected("hello world", 16) != model.expected("hello  world", 16));
  CHECK(model.expected("hello world", 16) != other.expected("hello world", 16));
  CHECK_EQ(model.expected("hello world", 16), model.expected("hello world", 16));
}

TEST(scripted_logits_are_all_different) {
  for (const int n_pieces : {1, 2, 6, 100}) {
    ScriptedOptions options;
    for (int i = 0; i < n_pieces; ++i) options.pieces.push_back("p" + std::to_string(i));
    ScriptedModel model(options);
    const auto backend = make(model);
    CHECK(backend->decode(items(0, 0, {0})) == DecodeStatus::kOk);
    const auto row = backend->logits(0);
    CHECK_EQ(row.size(), static_cast<std::size_t>(n_pieces + 3));
    std::vector<float> sorted(row.begin(), row.end());
    std::sort(sorted.begin(), sorted.end());
    CHECK(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end());
  }
}

TEST(scripted_completion_then_end) {
  for (const auto kind : kAllKinds) {
    ScriptedModel model(of_kind(kind));
    model.script("question", "answer");
    auto wanted = tokens("answer");
    CHECK_EQ(model.expected("question", 100), wanted);
    wanted.push_back(model.engine()->info().eos);
    const auto backend = make(model);
    CHECK_EQ(greedy(*backend, 0, 0, tokens("question"), 7), wanted);
    CHECK(model.expected("questiom", 6) != tokens("answer"));
    CHECK_THROWS(pronk::InvalidArgumentError, model.script(Tokens{}, Tokens{1}));
    CHECK_THROWS(pronk::InvalidArgumentError, model.script(Tokens{1}, Tokens{259}));
    CHECK_THROWS(pronk::InvalidArgumentError, model.expected(Tokens{-1}, 1));
  }
}

TEST(scripted_vocabulary) {
  ScriptedModel bytes;
  const auto& info = bytes.engine()->info();
  CHECK_EQ(info.n_vocab, 259);
  CHECK_EQ(info.bos, 256);
  CHECK_EQ(info.eos, 257);
  CHECK_EQ(info.eot, 258);
  CHECK(bytes.engine()->impl().is_eog(257) && bytes.engine()->impl().is_eog(258));
  CHECK(!bytes.engine()->impl().is_eog(256));

  ScriptedOptions options;
  options.pieces = {"a", "ab", "abc", "c", "\xc3", "\xa9"};
  options.add_bos = true;
  ScriptedModel model(options);
  const auto& impl = model.engine()->impl();
  CHECK_EQ(impl.tokenize("abcabac", true, false), (Tokens{6, 2, 1, 0, 3}));
  CHECK_EQ(impl.tokenize("\xc3\xa9", false, false), (Tokens{4, 5}));
  CHECK_EQ(impl.tokenize("a<eos>c<eot>", false, true), (Tokens{0, 7, 3, 8}));
  CHECK_EQ(model.tokenize("ab\xa9"), (Tokens{1, 5}));
  CHECK_THROWS(pronk::InvalidArgumentError, impl.tokenize("abd", false, false));
  std::string text;
  impl.append_piece(2, false, text);
  impl.append_piece(7, false, text);
  CHECK_EQ(text, "abc");
  impl.append_piece(7, true, text);
  CHECK_EQ(text, "abc<eos>");
}

TEST(scripted_options_are_checked) {
  ScriptedOptions options;
  options.memory_kind = MemoryKind::kSlidingWindow;
  CHECK_THROWS(pronk::InvalidArgumentError, ScriptedModel(options));
  options.memory_kind = MemoryKind::kPlain;
  options.n_swa = 4;
  CHECK_THROWS(pronk::InvalidArgumentError, ScriptedModel(options));
  options.n_swa = 0;
  options.pieces = {"a", ""};
  CHECK_THROWS(pronk::InvalidArgumentError, ScriptedModel(options));
  ScriptedModel model;
  CHECK_THROWS(pronk::InvalidArgumentError, make(model, 0));
  CHECK_THROWS(pronk::InvalidArgumentError, make(model, 257));
}

TEST(scripted_wrong_reuse_changes_the_text) {
  ScriptedModel model;
  const auto backend = make(model);
  CHECK(backend->decode(items(0, 0, tokens("hallo"))) == DecodeStatus::kOk);
  // Keeps "hal" where "hel" is meant.
  CHECK(backend->seq_remove(0, 3, -1));
  CHECK(greedy(*backend, 0, 3, tokens("lo"), 8) != model.expected("hello", 8));
  // The right one.
  CHECK(backend->seq_remove(0, 1, -1));
  CHECK_EQ(greedy(*backend, 0, 1, tokens("ello"), 8), model.expected("hello", 8));
  // Two of the first token: the copy found its target not empty.
  CHECK(backend->seq_remove(0, 1, -1));
  CHECK(backend->decode(items(1, 0, tokens("h"))) == DecodeStatus::kOk);
  backend->seq_copy(0, 1, 0, 1);
  CHECK(greedy(*backend, 1, 1, tokens("ello"), 8) != model.expected("hello", 8));
}

TEST(scripted_batches_are_checked_like_llama_cpp_does) {
  ScriptedModel model;
  const auto backend = make(model);
  const auto bad = DecodeStatus::kInvalidBatch;
  CHECK(backend->decode({}) == bad);
  CHECK(backend->decode(items(2, 0, {1})) == bad);
  CHECK(backend->decode(items(-1, 0, {1})) == bad);
  CHECK(backend->decode(items(0, 0, {259})) == bad);
  CHECK(backend->decode(items(0, 0, {-1})) == bad);
  CHECK(backend->decode(items(0, -1, {1})) == bad);
  CHECK(backend->decode(items(0, 0, {1, 2})) == DecodeStatus::kOk);
  CHECK(backend->decode(items(0, 1, {1})) == bad);
  CHECK(backend->decode(items(0, 3, {1})) == bad);
  auto gap = items(0, 2, {1, 2});
  gap[1].pos = 4;
  CHECK(backend->decode(gap) == bad);
  CHECK_EQ(backend->seq_pos_max(0), 1);
  CHECK_EQ(model.cells_used(), 2);
  // An empty sequence may start anywhere; a batch may mix sequences.
  auto mixed = items(1, 7, {1});
  mixed.push_back({3, 2, 0, true});
  CHECK(backend->decode(mixed) == DecodeStatus::kOk);
  CHECK_EQ(backend->seq_pos_min(1), 7);
  CHECK(model.violations().empty());
}

TEST(scripted_unified_cells_are_shared_and_counted_once) {
  ScriptedModel model;
  const auto backend = make(model, 4, true, 16);
  CHECK_EQ(backend->n_ctx_seq(), 16);
  CHECK(backend->decode(items(0, 0, Tokens(10, 'a'))) == DecodeStatus::kOk);
  backend->seq_copy(0, 1, 0, 8);
  backend->seq_copy(0, 1, 4, 8);  // shared already
  backend->seq_copy(0, 2, -1, -1);
  CHECK_EQ(model.cells_used(), 10);
  CHECK_EQ(backend->seq_pos_max(1), 7);
  CHECK_EQ(backend->seq_pos_max(2), 9);
  CHECK(backend->seq_remove(0, -1, -1));
  CHECK_EQ(model.cells_used(), 10);
  CHECK(backend->seq_remove(2, 9, -1));
  CHECK_EQ(model.cells_used(), 9);
  CHECK(backend->decode(items(3, 0, Tokens(8, 'b'))) == DecodeStatus::kNoSlot);
  CHECK_EQ(backend->seq_pos_max(3), -1);
  CHECK(backend->decode(items(3, 0, Tokens(7, 'b'))) == DecodeStatus::kOk);
  CHECK(backend->decode(items(1, 8, {'c'})) == DecodeStatus::kNoSlot);
  CHECK(backend->seq_remove(3, -1, -1));
  CHECK_EQ(greedy(*backend, 1, 8, {'c'}, 4), model.expected(std::string(8, 'a') + "c", 4));
}

TEST(scripted_split_streams_have_room_of_their_own) {
  ScriptedModel model;
  const auto backend = make(model, 2, false, 8);
  CHECK_EQ(backend->n_ctx_seq(), 8);
  CHECK_EQ(backend->n_ctx_total(), 16);
  CHECK(backend->decode(items(0, 0, Tokens(9, 'a'))) == DecodeStatus::kNoSlot);
  CHECK(backend->decode(items(0, 0, Tokens(8, 'a'))) == DecodeStatus::kOk);
  CHECK(backend->decode(items(1, 0, Tokens(3, 'b'))) == DecodeStatus::kOk);
  CHECK_THROWS(std::logic_error, backend->seq_copy(0, 1, 0, 4));
  CHECK_EQ(model.violations().size(), 1u);
  // A whole copy replaces the target.
  backend->seq_copy(0, 1, -1, -1);
  CHECK_EQ(model.cells_used(), 16);
  CHECK(backend->seq_remove(1, 4, -1));
  CHECK_EQ(greedy(*backend, 1, 4, tokens("xyz"), 1), model.expected("aaaaxyz", 1));
}

TEST(scripted_recurrent_state_goes_whole_or_not_at_all) {
  for (const auto kind : {MemoryKind::kRecurrent, MemoryKind::kHybrid}) {
    ScriptedModel model(of_kind(kind));
    const auto backend = make(model);
    CHECK(backend->decode(items(0, 0, tokens("abcd"))) == DecodeStatus::kOk);
    CHECK_EQ(backend->seq_pos_min(0), 3);
    CHECK_EQ(backend->seq_pos_max(0), 3);
    CHECK(!backend->seq_remove(0, 2, -1));
    CHECK(!backend->seq_remove(0, 3, 4));
    CHECK(backend->seq_remove(0, 4, -1));
    CHECK_EQ(backend->seq_pos_max(0), 3);
    backend->seq_copy(0, 1, -1, -1);
    CHECK(backend->seq_remove(0, -1, -1));
    CHECK_EQ(backend->seq_pos_max(0), -1);
    CHECK_EQ(greedy(*backend, 1, 4, tokens("e"), 6), model.expected("abcde", 6));
    CHECK(model.violations().empty());
  }
}

TEST(scripted_hybrid_notices_a_copy_of_a_part) {
  ScriptedModel model(of_kind(MemoryKind::kHybrid));
  const auto backend = make(model);
  CHECK(backend->decode(items(0, 0, tokens("abcd"))) == DecodeStatus::kOk);
  backend->seq_copy(0, 1, 0, 2);
  CHECK_EQ(backend->seq_pos_max(1), 1);
  CHECK(greedy(*backend, 1, 2, tokens("cd"), 6) != model.expected("abcd", 6));
}

TEST(scripted_window_forgets) {
  ScriptedModel model(of_kind(MemoryKind::kSlidingWindow));
  const auto backend = make(model);
  CHECK(backend->decode(items(0, 0, tokens("abcdefgh"))) == DecodeStatus::kOk);
  CHECK_EQ(backend->seq_pos_min(0), 4);
  CHECK_EQ(backend->seq_pos_max(0), 7);
  backend->seq_copy(0, 1, 0, 7);
  // One token back all that the next one sees is still there.
  CHECK(backend->seq_remove(0, 7, -1));
  CHECK_EQ(greedy(*backend, 0, 7, tokens("x"), 6), model.expected("abcdefgx", 6));
  CHECK_EQ(greedy(*backend, 1, 7, tokens("x"), 6), model.expected("abcdefgx", 6));
  // Further back it is not.
  CHECK(backend->seq_remove(0, -1, -1));
  CHECK(backend->decode(items(0, 0, tokens("abcdefgh"))) == DecodeStatus::kOk);
  CHECK(backend->seq_remove(0, 5, -1));
  CHECK(greedy(*backend, 0, 5, tokens("x"), 6) != model.expected("abcdex", 6));
}
