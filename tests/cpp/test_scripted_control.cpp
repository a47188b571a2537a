// What a test does to the scripted backend: faults, holding, counting; and the misuse that it
// notices.
#include <cmath>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "pronk/error.h"
#include "scripted_context.h"

using namespace scripted;

TEST(scripted_misuse_is_kept_and_thrown) {
  ScriptedModel model;
  const auto backend = make(model);
  CHECK_THROWS(std::logic_error, backend->decode(items(0, 0, Tokens(33, 'a'))));
  auto outputs = items(0, 0, Tokens(5, 'a'));
  for (auto& item : outputs) item.output = true;
  CHECK_THROWS(std::logic_error, backend->decode(outputs));
  CHECK_THROWS(std::logic_error, backend->seq_remove(2, -1, -1));
  CHECK_THROWS(std::logic_error, backend->seq_copy(0, -1, -1, -1));
  CHECK_THROWS(std::logic_error, backend->seq_pos_max(5));
  CHECK_THROWS(std::logic_error, backend->logits(0));
  CHECK(backend->decode(items(0, 0, {1, 2})) == DecodeStatus::kOk);
  CHECK(backend->logits(0).empty());
  CHECK_EQ(backend->logits(1).size(), 259u);
  CHECK_THROWS(std::logic_error, backend->logits(2));
  CHECK_EQ(model.violations().size(), 7u);
  CHECK_EQ(model.counters().decode_calls, 1);
}

TEST(scripted_faults_come_at_their_call) {
  ScriptedModel model;
  const auto backend = make(model);
  model.add_fault({.kind = FaultKind::kFailed, .call = 2, .applied = 2});
  model.add_fault({.kind = FaultKind::kNoSlot, .call = 4, .times = 2});
  CHECK(backend->decode(items(0, 0, {1})) == DecodeStatus::kOk);
  CHECK(backend->decode(items(0, 1, {2, 3, 4})) == DecodeStatus::kFailed);
  CHECK_EQ(backend->seq_pos_max(0), 2);
  CHECK_THROWS(std::logic_error, backend->logits(2));
  CHECK_EQ(greedy(*backend, 0, 3, {4}, 1), model.expected(Tokens{1, 2, 3, 4}, 1));
  CHECK(backend->decode(items(0, 4, {5})) == DecodeStatus::kNoSlot);
  CHECK(backend->decode(items(0, 4, {5})) == DecodeStatus::kNoSlot);
  CHECK_EQ(backend->seq_pos_max(0), 3);
  CHECK(backend->decode(items(0, 4, {5})) == DecodeStatus::kOk);
  model.add_fault({.kind = FaultKind::kInvalidBatch});
  CHECK(backend->decode(items(0, 5, {6})) == DecodeStatus::kInvalidBatch);
  model.add_fault({.kind = FaultKind::kNoMemory, .times = -1});
  for (int i = 0; i < 3; ++i) CHECK(backend->decode(items(0, 5, {6})) == DecodeStatus::kNoMemory);
  model.clear_faults();
  CHECK(backend->decode(items(0, 5, {6})) == DecodeStatus::kOk);
  CHECK_EQ(model.counters().items, 1 + 2 + 1 + 1 + 1);
}

TEST(scripted_failure_leaves_a_recurrent_state_spoilt) {
  ScriptedModel model(of_kind(MemoryKind::kRecurrent));
  const auto backend = make(model);
  CHECK(backend->decode(items(0, 0, tokens("ab"))) == DecodeStatus::kOk);
  model.add_fault({.kind = FaultKind::kFailed});
  auto batch = items(0, 2, tokens("c"));
  batch.push_back({'x', 0, 1, true});
  CHECK(backend->decode(batch) == DecodeStatus::kFailed);
  // Looks as if it had worked, and has not; a sequence that was empty is so again.
  CHECK_EQ(backend->seq_pos_max(0), 2);
  CHECK_EQ(backend->seq_pos_max(1), -1);
  CHECK(greedy(*backend, 0, 3, tokens("d"), 6) != model.expected("abcd", 6));
  CHECK(backend->seq_remove(0, -1, -1));
  CHECK_EQ(greedy(*backend, 0, 0, tokens("abcd"), 6), model.expected("abcd", 6));
}

TEST(scripted_faults_that_throw) {
  ScriptedModel model;
  auto backend = make(model);
  model.add_fault({.kind = FaultKind::kRuntimeError, .call = 1});
  model.add_fault({.kind = FaultKind::kBadAlloc, .call = 2});
  model.add_fault({.kind = FaultKind::kForeignException, .call = 3});
  CHECK_THROWS(std::runtime_error, backend->decode(items(0, 0, {1})));
  CHECK_THROWS(std::bad_alloc, backend->decode(items(0, 0, {1})));
  bool foreign = false;
  try {
    backend->decode(items(0, 0, {1}));
  } catch (const std::exception&) {
  } catch (...) {
    foreign = true;
  }
  CHECK(foreign);
  CHECK(backend->decode(items(0, 0, {1})) == DecodeStatus::kOk);
  CHECK_EQ(model.counters().decodes_finished, 4);

  model.add_fault({.point = FaultPoint::kSeqRemove, .kind = FaultKind::kReturnFalse});
  model.add_fault({.point = FaultPoint::kSeqRemove, .kind = FaultKind::kRuntimeError, .call = 2});
  CHECK(!backend->seq_remove(0, -1, -1));
  CHECK_THROWS(std::runtime_error, backend->seq_remove(0, -1, -1));
  CHECK_EQ(backend->seq_pos_max(0), 0);
  CHECK(backend->seq_remove(0, -1, -1));
  model.add_fault({.point = FaultPoint::kSeqCopy, .kind = FaultKind::kBadAlloc});
  CHECK_THROWS(std::bad_alloc, backend->seq_copy(0, 1, -1, -1));

  model.add_fault({.point = FaultPoint::kMakeBackend, .kind = FaultKind::kNoMemory});
  CHECK_THROWS(pronk::InsufficientMemoryError, make(model));
  model.add_fault({.point = FaultPoint::kMakeBackend, .kind = FaultKind::kFailed});
  CHECK_THROWS(pronk::BackendError, make(model));
  CHECK_EQ(model.counters().backends_alive, 1);
  backend.reset();
  CHECK_EQ(model.counters().backends_alive, 0);
  CHECK_EQ(model.counters().backends_made, 1);
}

TEST(scripted_faults_are_checked) {
  ScriptedModel model;
  using Error = pronk::InvalidArgumentError;
  CHECK_THROWS(Error, model.add_fault({.kind = FaultKind::kReturnFalse}));
  CHECK_THROWS(Error, model.add_fault({.point = FaultPoint::kSeqCopy, .kind = FaultKind::kFailed}));
  CHECK_THROWS(Error, model.add_fault({.kind = FaultKind::kNoSlot, .applied = 1}));
  CHECK_THROWS(Error, model.add_fault({.kind = FaultKind::kFailed, .applied = -1}));
  CHECK_THROWS(Error, model.add_fault({.times = 0}));
  CHECK_THROWS(Error, model.add_fault({.kind = FaultKind::kSleep, .duration = -1ns}));
  CHECK_THROWS(Error, model.step(1));
  model.hold();
  CHECK_THROWS(Error, model.step(0));
  CHECK_THROWS(Error, model.set_delay(-1ns));
}

TEST(scripted_logits_can_be_impossible) {
  ScriptedModel model;
  const auto backend = make(model);
  model.add_fault({.kind = FaultKind::kNanLogits, .call = 1});
  model.add_fault({.kind = FaultKind::kImpossibleLogits, .call = 2});
  CHECK(backend->decode(items(0, 0, {1})) == DecodeStatus::kOk);
  CHECK(std::isnan(backend->logits(0)[17]));
  CHECK(backend->decode(items(0, 1, {2})) == DecodeStatus::kOk);
  CHECK_EQ(backend->logits(0)[17], -std::numeric_limits<float>::infinity());
  CHECK_EQ(greedy(*backend, 0, 2, {3}, 1), model.expected(Tokens{1, 2, 3}, 1));
}

TEST(scripted_hold_and_step) {
  ScriptedModel model;
  const auto backend = make(model);
  model.hold();
  CHECK(!model.wait_held(1ms));
  std::thread loop([&] { CHECK_EQ(greedy(*backend, 0, 0, {1}, 5), model.expected(Tokens{1}, 5)); });
  CHECK(model.wait_held(kHangGuard));
  CHECK_EQ(model.counters().decode_calls, 0);
  model.step();
  CHECK(model.wait_held(kHangGuard));
  CHECK_EQ(model.counters().decodes_finished, 1);
  model.step(2);
  CHECK(model.wait_decodes(3, kHangGuard));
  CHECK(model.wait_held(kHangGuard));
  CHECK_EQ(model.counters().decode_calls, 3);
  CHECK_EQ(model.sequences()[std::pair(0, 0)].size(), 3u);
  model.resume();
  loop.join();
  CHECK_EQ(model.counters().decode_calls, 5);
  CHECK(!model.wait_decodes(6, 0ns));
}

TEST(scripted_abort_frees_a_held_and_a_blocked_decode) {
  ScriptedModel model;
  const auto backend = make(model);
  model.hold();
  std::thread held([&] { CHECK(backend->decode(items(0, 0, {1})) == DecodeStatus::kAborted); });
  CHECK(model.wait_held(kHangGuard));
  backend->abort(true);
  held.join();
  CHECK_EQ(backend->seq_pos_max(0), -1);
  // An abort lasts until it is taken back.
  CHECK(backend->decode(items(0, 0, {1})) == DecodeStatus::kAborted);
  backend->abort(false);
  model.resume();
  model.add_fault({.kind = FaultKind::kBlock, .times = 2});
  std::thread blocked([&] { CHECK(backend->decode(items(0, 0, {1})) == DecodeStatus::kAborted); });
  CHECK(model.wait_blocked(kHangGuard));
  backend->abort(true);
  blocked.join();
  backend->abort(false);
  std::thread released([&] { CHECK(backend->decode(items(0, 0, {1})) == DecodeStatus::kOk); });
  CHECK(model.wait_blocked(kHangGuard));
  model.release_blocked();
  released.join();
  model.add_fault({.kind = FaultKind::kSleep, .duration = 24h});
  std::thread asleep([&] { CHECK(backend->decode(items(0, 1, {1})) == DecodeStatus::kAborted); });
  CHECK(!model.wait_decodes(5, 1ms));
  backend->abort(true);
  asleep.join();
}

TEST(scripted_block_can_ignore_an_abort) {
  ScriptedModel model;
  const auto backend = make(model);
  model.add_fault({.kind = FaultKind::kBlock, .ignore_abort = true});
  std::thread blocked([&] { CHECK(backend->decode(items(0, 0, {1})) == DecodeStatus::kAborted); });
  CHECK(model.wait_blocked(kHangGuard));
  backend->abort(true);
  CHECK(!model.wait_decodes(1, 20ms));
  model.release_blocked();
  blocked.join();
}

TEST(scripted_model_lets_go_when_dropped) {
  auto model = std::make_unique<ScriptedModel>();
  const auto one = make(*model);
  const auto two = make(*model);
  model->add_fault({.kind = FaultKind::kBlock, .ignore_abort = true});
  std::thread blocked([&] { CHECK(one->decode(items(0, 0, {1})) == DecodeStatus::kOk); });
  CHECK(model->wait_blocked(kHangGuard));
  model->hold();
  std::thread held([&] { CHECK(two->decode(items(0, 0, {1})) == DecodeStatus::kOk); });
  CHECK(model->wait_held(kHangGuard));
  CHECK_EQ(model->counters().most_decoding, 2);
  model.reset();
  blocked.join();
  held.join();
  // The contexts live on.
  CHECK(one->decode(items(0, 1, {2})) == DecodeStatus::kOk);
}

TEST(scripted_delay_moves_a_manual_clock) {
  ScriptedOptions options;
  options.clock.emplace();
  ScriptedModel model(options);
  const auto backend = make(model);
  model.set_delay(10ms, 1ms);
  model.add_fault({.kind = FaultKind::kSleep, .call = 2, .duration = 5s});
  CHECK(backend->decode(items(0, 0, {1, 2, 3})) == DecodeStatus::kOk);
  CHECK(options.clock->now() == 13ms);
  CHECK(backend->decode(items(0, 3, {1})) == DecodeStatus::kOk);
  CHECK(options.clock->now() == 24ms + 5s);
}

TEST(scripted_counts_and_records) {
  ScriptedModel model;
  const auto backend = make(model);
  model.record(true);
  auto batch = items(0, 0, {1, 2});
  batch.push_back({3, 0, 1, true});
  CHECK(backend->decode(batch) == DecodeStatus::kOk);
  CHECK(backend->decode(items(1, 5, {4})) == DecodeStatus::kInvalidBatch);
  model.record(false);
  CHECK(backend->decode(items(1, 1, {4})) == DecodeStatus::kOk);
  const auto counters = model.counters();
  CHECK_EQ(counters.decode_calls, 3);
  CHECK_EQ(counters.items, 4);
  CHECK_EQ(counters.outputs, 3);
  CHECK_EQ(counters.most_sequences, 2);
  CHECK_EQ(counters.sequence_items.at({0, 0}), 2u);
  CHECK_EQ(counters.sequence_items.at({0, 1}), 2u);
  const auto batches = model.batches();
  REQUIRE(batches.size() == 2);
  CHECK_EQ(batches[0].result, "ok");
  CHECK_EQ(batches[0].items.size(), 3u);
  CHECK_EQ(batches[0].items[2].seq, 1);
  CHECK(batches[0].items[2].output);
  CHECK_EQ(batches[1].result, "invalid_batch");
  CHECK_EQ(batches[1].call, 2);
  CHECK_EQ(model.sequences().at({0, 0}), (Tokens{1, 2}));
}

TEST(scripted_notices_two_threads_in_one_context) {
  ScriptedModel model;
  const auto backend = make(model);
  model.hold();
  std::thread loop([&] { CHECK(backend->decode(items(0, 0, {1})) == DecodeStatus::kOk); });
  CHECK(model.wait_held(kHangGuard));
  CHECK_THROWS(std::logic_error, backend->seq_remove(0, -1, -1));
  CHECK_EQ(model.violations().size(), 1u);
  model.resume();
  loop.join();
}
