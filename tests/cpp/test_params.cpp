// What validate() lets through, and what it says otherwise.
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "check.h"
#include "pronk/error.h"
#include "pronk/params.h"

namespace {

using pronk::GenerationParams;

constexpr std::int32_t kVocab = 100;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
constexpr std::int32_t kLeast = std::numeric_limits<std::int32_t>::min();

std::optional<std::string> refusal(const std::function<void(GenerationParams&)>& change) {
  GenerationParams params;
  change(params);
  return check::message_of<pronk::InvalidArgumentError>([&] { pronk::validate(params, kVocab); });
}

TEST(params_defaults_are_valid) {
  CHECK_EQ(refusal([](GenerationParams&) {}), std::nullopt);
}

// Every float field: both ends of its range, the floats next to them outside, NaN and the
// infinities.
TEST(params_floats_have_ranges) {
  struct Field {
    const char* name;
    float pronk::SamplingParams::* field;
    float low, high;
    bool low_included;
  };
  using S = pronk::SamplingParams;
  for (const Field& f : std::vector<Field>{
           {"temperature", &S::temperature, 0, 100, true},
           {"top_p", &S::top_p, 0, 1, false},
           {"min_p", &S::min_p, 0, 1, true},
           {"repeat_penalty", &S::repeat_penalty, 0, 100, false},
           {"frequency_penalty", &S::frequency_penalty, -100, 100, true},
           {"presence_penalty", &S::presence_penalty, -100, 100, true},
       }) {
    const auto with = [&](float value) {
      return refusal([&](GenerationParams& p) { p.sampling.*f.field = value; });
    };
    CHECK_EQ(with(f.low).has_value(), !f.low_included);
    CHECK_EQ(with(std::nextafter(f.low, kInfinity)), std::nullopt);
    CHECK_EQ(with(f.high), std::nullopt);
    for (const float bad : {std::nextafter(f.low, -kInfinity), std::nextafter(f.high, kInfinity),
                            kNan, -kNan, kInfinity, -kInfinity, -1e30f, 1e30f}) {
      const auto message = with(bad);
      if (CHECK(message.has_value())) CHECK(message->starts_with(std::string(f.name) + ": got "));
    }
  }
}

TEST(params_messages_say_what_to_do) {
  CHECK_EQ(refusal([](auto& p) { p.sampling.temperature = -kNan; }),
           "temperature: got nan, expected a number in [0, 100], use 0 for greedy sampling");
  CHECK_EQ(refusal([](auto& p) { p.sampling.top_p = 0; }),
           "top_p: got 0, expected a number in (0, 1], use 1 to turn it off");
  CHECK_EQ(refusal([](auto& p) { p.sampling.top_p = std::nextafter(1.0f, 2.0f); }),
           "top_p: got 1.00000012, expected a number in (0, 1], use 1 to turn it off");
  CHECK_EQ(refusal([](auto& p) { p.sampling.min_p = -0.1f; }),
           "min_p: got -0.1, expected a number in [0, 1], use 0 to turn it off");
  CHECK_EQ(refusal([](auto& p) { p.sampling.top_k = -1; }),
           "top_k: got -1, expected an integer >= 0, use 0 to keep all tokens");
  CHECK_EQ(refusal([](auto& p) { p.sampling.logit_bias = {{100, 1.0f}}; }),
           "logit_bias: got token 100, expected a token id in [0, 100), take ids from this model's "
           "tokenize()");
  CHECK_EQ(refusal([](auto& p) { p.stop = {"ok", ""}; }),
           "stop[1]: got an empty string, expected at least one character, remove it");
  CHECK_EQ(
      refusal([](auto& p) { p.stop = {"a\xFF"}; }),
      "stop[0]: got an invalid byte at offset 1, expected valid UTF-8, encode the text as UTF-8");
  CHECK_EQ(refusal([](auto& p) { p.logprobs = 33; }),
           "logprobs: got 33, expected an integer in [-1, 32], use -1 to turn them off");
}

TEST(params_integers_have_ranges) {
  for (const std::int32_t good : {0, 1, 100, kMost}) {
    CHECK_EQ(refusal([&](auto& p) { p.sampling.top_k = good; }), std::nullopt);
    CHECK_EQ(refusal([&](auto& p) { p.sampling.penalty_last_n = good; }), std::nullopt);
    CHECK_EQ(refusal([&](auto& p) { p.max_tokens = good; }), std::nullopt);
  }
  CHECK_EQ(refusal([](auto& p) { p.sampling.penalty_last_n = -1; }), std::nullopt);
  CHECK_EQ(refusal([](auto& p) { p.max_tokens = std::nullopt; }), std::nullopt);
  for (const std::int32_t good : {-1, 0, 1, 32})
    CHECK_EQ(refusal([&](auto& p) { p.logprobs = good; }), std::nullopt);
  for (const std::int32_t bad : {-1, -2, kLeast}) {
    CHECK(refusal([&](auto& p) { p.sampling.top_k = bad; }).has_value());
    CHECK(refusal([&](auto& p) { p.max_tokens = bad; }).has_value());
  }
  for (const std::int32_t bad : {-2, kLeast})
    CHECK(refusal([&](auto& p) { p.sampling.penalty_last_n = bad; }).has_value());
  for (const std::int32_t bad : {-2, 33, kMost, kLeast})
    CHECK(refusal([&](auto& p) { p.logprobs = bad; }).has_value());
}

TEST(params_any_seed_is_ordinary) {
  for (const std::uint64_t seed :
       {std::uint64_t{0}, std::uint64_t{1}, std::numeric_limits<std::uint64_t>::max()}) {
    CHECK_EQ(refusal([&](auto& p) { p.sampling.seed = seed; }), std::nullopt);
  }
}

TEST(params_logit_bias) {
  const auto with = [](pronk::Token token, float bias) {
    return refusal([&](auto& p) { p.sampling.logit_bias = {{0, 1.0f}, {token, bias}}; });
  };
  CHECK_EQ(with(0, 0), std::nullopt);
  CHECK_EQ(with(99, -kInfinity), std::nullopt);
  CHECK_EQ(with(99, std::numeric_limits<float>::max()), std::nullopt);
  for (const pronk::Token bad : {-1, 100, kMost, kLeast}) CHECK(with(bad, 1).has_value());
  CHECK(with(5, kNan).has_value());
  CHECK(with(5, kInfinity).has_value());
  GenerationParams params;
  params.sampling.logit_bias = {{0, 1.0f}};
  CHECK_THROWS(pronk::InvalidArgumentError, pronk::validate(params, 0));
}

TEST(params_stops) {
  const auto with = [](std::vector<std::string> stops) {
    return refusal([&](auto& p) { p.stop = std::move(stops); });
  };
  CHECK_EQ(with(std::vector<std::string>(64, "x")), std::nullopt);
  CHECK(with(std::vector<std::string>(65, "x")).has_value());
  CHECK_EQ(with({std::string(4096, 'x')}), std::nullopt);
  CHECK(with({std::string(4097, 'x')}).has_value());
  CHECK_EQ(with({"\xF0\x9F\xA6\x99", std::string("\0", 1)}), std::nullopt);
  for (const char* bad : {"\x80", "\xC3", "\xED\xA0\x80", "\xC0\x80", "ok\xF5"})
    CHECK(with({bad}).has_value());
}

TEST(params_cache_scope_is_bounded) {
  CHECK_EQ(refusal([](auto& p) { p.cache_scope = std::string(4096, 's'); }), std::nullopt);
  CHECK(refusal([](auto& p) { p.cache_scope = std::string(4097, 's'); }).has_value());
}

TEST(errors_carry_their_code) {
  const pronk::ModelLoadError error("model.gguf: got no file", 2);
  CHECK_EQ(error.code(), pronk::ErrorCode::kModelLoad);
  CHECK_EQ(error.os_errno(), 2);
  CHECK_EQ(std::string(error.what()), "model.gguf: got no file");
  CHECK_EQ(pronk::BackendError("x").code(), pronk::ErrorCode::kBackend);
  CHECK_EQ(pronk::InvalidArgumentError("x").code(), pronk::ErrorCode::kInvalidArgument);
  CHECK_EQ(pronk::InsufficientMemoryError("x").code(), pronk::ErrorCode::kInsufficientMemory);
  CHECK_EQ(pronk::ContextOverflowError("x").code(), pronk::ErrorCode::kContextOverflow);
  CHECK_EQ(pronk::AcquireTimeout("x").code(), pronk::ErrorCode::kAcquireTimeout);
  CHECK_EQ(pronk::QueueFullError("x").code(), pronk::ErrorCode::kQueueFull);
  CHECK_EQ(pronk::SchedulerClosedError("x").code(), pronk::ErrorCode::kSchedulerClosed);
  CHECK_EQ(pronk::PermitReleasedError("x").code(), pronk::ErrorCode::kPermitReleased);
  CHECK_EQ(pronk::PermitBusyError("x").code(), pronk::ErrorCode::kPermitBusy);
  CHECK_EQ(pronk::DeadlockError("x").code(), pronk::ErrorCode::kDeadlock);
  CHECK_EQ(pronk::GrammarError("x").code(), pronk::ErrorCode::kGrammar);
  CHECK_EQ(pronk::ForkedProcessError("x").code(), pronk::ErrorCode::kForkedProcess);
  CHECK_EQ(pronk::GenerationCancelled("x").code(), pronk::ErrorCode::kGenerationCancelled);
  CHECK_EQ(pronk::PoolNotInitialisedError("x").code(), pronk::ErrorCode::kPoolNotInitialised);
}

}  // namespace
