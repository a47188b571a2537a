#include "pronk/params.h"

#include <cmath>
#include <limits>
#include <locale>
#include <sstream>
#include <string>
#include <string_view>

#include "pronk/error.h"
#include "utf8.h"

namespace pronk::inline v0 {
namespace {

constexpr std::size_t kMaxStops = 64;
constexpr std::size_t kMaxStopBytes = 4096;
constexpr std::size_t kMaxScopeBytes = 4096;
constexpr std::int32_t kMaxLogprobs = 32;

// A range of numbers and what to say about it.
struct Range {
  float low;
  float high;
  bool low_included;
  std::string_view advice;
};

// As few digits as tell the value apart, in any locale; `nan` without a sign.
std::string show(float value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text.precision(std::numeric_limits<float>::digits10);
  text << value;
  float back = 0;
  std::istringstream reader(text.str());
  reader.imbue(std::locale::classic());
  if (reader >> back && back == value) return text.str();
  text.str({});
  text.precision(std::numeric_limits<float>::max_digits10);
  text << value;
  return text.str();
}

[[noreturn]] void refuse(std::string_view what, std::string_view got, std::string_view expected,
                         std::string_view advice) {
  std::string message;
  message.append(what).append(": got ").append(got).append(", expected ").append(expected);
  message.append(", ").append(advice);
  throw InvalidArgumentError(message);
}

void check_number(std::string_view what, float value, const Range& range) {
  const bool above = range.low_included ? value >= range.low : value > range.low;
  if (above && value <= range.high) return;  // false for NaN
  refuse(what, show(value),
         std::string("a number in ") + (range.low_included ? "[" : "(") + show(range.low) + ", " +
             show(range.high) + "]",
         range.advice);
}

void check_at_least(std::string_view what, std::int32_t value, std::int32_t low,
                    std::string_view advice) {
  if (value >= low) return;
  refuse(what, std::to_string(value), "an integer >= " + std::to_string(low), advice);
}

void check_logit_bias(const SamplingParams& sampling, std::int32_t n_vocab) {
  for (const auto& [token, bias] : sampling.logit_bias) {
    if (token < 0 || token >= n_vocab) {
      refuse("logit_bias", "token " + std::to_string(token),
             "a token id in [0, " + std::to_string(n_vocab) + ")",
             "take ids from this model's tokenize()");
    }
    if (std::isnan(bias) || bias == std::numeric_limits<float>::infinity()) {
      refuse("logit_bias", show(bias) + " for token " + std::to_string(token),
             "a finite number or -inf", "use -inf to ban a token, 100 to all but force it");
    }
  }
}

void check_stops(const std::vector<std::string>& stops) {
  if (stops.size() > kMaxStops) {
    refuse("stop", std::to_string(stops.size()) + " strings",
           "at most " + std::to_string(kMaxStops), "pass fewer");
  }
  for (std::size_t i = 0; i < stops.size(); ++i) {
    const std::string what = "stop[" + std::to_string(i) + "]";
    if (stops[i].empty()) {
      refuse(what, "an empty string", "at least one character", "remove it");
    }
    if (stops[i].size() > kMaxStopBytes) {
      refuse(what, std::to_string(stops[i].size()) + " bytes",
             "at most " + std::to_string(kMaxStopBytes), "pass the beginning that tells it apart");
    }
    if (const std::size_t at = find_invalid_utf8(stops[i]); at != std::string_view::npos) {
      refuse(what, "an invalid byte at offset " + std::to_string(at), "valid UTF-8",
             "encode the text as UTF-8");
    }
  }
}

}  // namespace

void validate(const GenerationParams& params, std::int32_t n_vocab) {
  const SamplingParams& sampling = params.sampling;
  check_number("temperature", sampling.temperature, {0, 100, true, "use 0 for greedy sampling"});
  check_at_least("top_k", sampling.top_k, 0, "use 0 to keep all tokens");
  check_number("top_p", sampling.top_p, {0, 1, false, "use 1 to turn it off"});
  check_number("min_p", sampling.min_p, {0, 1, true, "use 0 to turn it off"});
  check_number("repeat_penalty", sampling.repeat_penalty, {0, 100, false, "use 1 to turn it off"});
  check_number("frequency_penalty", sampling.frequency_penalty,
               {-100, 100, true, "use 0 to turn it off"});
  check_number("presence_penalty", sampling.presence_penalty,
               {-100, 100, true, "use 0 to turn it off"});
  check_at_least("penalty_last_n", sampling.penalty_last_n, -1,
                 "use -1 to look back on all tokens, 0 on none");
  check_logit_bias(sampling, n_vocab);

  if (params.max_tokens) {
    check_at_least("max_tokens", *params.max_tokens, 0, "leave it out to fill the context");
  }
  check_stops(params.stop);
  if (params.logprobs < -1 || params.logprobs > kMaxLogprobs) {
    refuse("logprobs", std::to_string(params.logprobs),
           "an integer in [-1, " + std::to_string(kMaxLogprobs) + "]", "use -1 to turn them off");
  }
  if (!params.grammar.empty() && !params.json_schema.empty()) {
    refuse("grammar", "one beside a json_schema", "one of the two", "leave the other out");
  }
  if (params.cache_scope.size() > kMaxScopeBytes) {
    refuse("cache_scope", std::to_string(params.cache_scope.size()) + " bytes",
           "at most " + std::to_string(kMaxScopeBytes), "use a short name");
  }
}

}  // namespace pronk::inline v0
