#include "sampler.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "pronk/error.h"

namespace pronk::inline v0 {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

std::uint64_t fresh_seed() {
  try {
    std::random_device device;
    const std::uint64_t high = device();
    return (high << 32) ^ device();
  } catch (const std::exception&) {
    // The system has no random numbers to give, or no file descriptor to read them from. Seeds that
    // differ will do.
    static std::atomic<std::uint64_t> counter{0};
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    return SplitMix64(static_cast<std::uint64_t>(now) ^ SplitMix64(++counter).next()).next();
  }
}

// Adding to or dividing a finite logit never makes it infinite, which would mean a broken model.
float bounded(float logit) noexcept { return std::min(logit, kLargest); }

}  // namespace

Sampler::Sampler(const SamplingParams& params, std::int32_t n_vocab, std::span<const Token> eog)
    : temperature_(params.temperature),
      top_k_(params.top_k),
      top_p_(params.top_p),
      min_p_(params.min_p),
      repeat_penalty_(params.repeat_penalty),
      frequency_penalty_(params.frequency_penalty),
      presence_penalty_(params.presence_penalty),
      penalties_(params.penalty_last_n != 0 &&
                 (params.repeat_penalty != 1 || params.frequency_penalty != 0 ||
                  params.presence_penalty != 0)),
      n_vocab_(n_vocab),
      seed_(params.seed ? *params.seed : fresh_seed()),
      rng_(seed_),
      window_(penalties_ ? params.penalty_last_n : 0) {
  for (const auto& [token, bias] : params.logit_bias) {
    if (valid(token)) bias_.push_back({token, bias});
  }
  if (params.ignore_eos) {
    for (const Token token : eog) {
      if (valid(token)) bias_.push_back({token, kMinusInfinity});
    }
  }
  std::stable_sort(bias_.begin(), bias_.end(),
                   [](const auto& a, const auto& b) { return a.token < b.token; });
  // A token named twice gets the sum.
  std::size_t n = 0;
  for (const LogitScan::Override& entry : bias_) {
    if (n > 0 && bias_[n - 1].token == entry.token) {
      bias_[n - 1].logit = bounded(bias_[n - 1].logit + entry.logit);
    } else {
      bias_[n++] = entry;
    }
  }
  bias_.resize(n);
}

void Sampler::accept(Token token) {
  if (penalties_ && valid(token)) window_.add(token);
}

void Sampler::accept(std::span<const Token> tokens) {
  if (!penalties_) return;
  if (std::all_of(tokens.begin(), tokens.end(), [this](Token token) { return valid(token); })) {
    window_.add(tokens);
  } else {
    for (const Token token : tokens) accept(token);
  }
}

float Sampler::penalised(float logit, std::int32_t count) const noexcept {
  logit = logit > 0 ? logit / repeat_penalty_ : logit * repeat_penalty_;
  return logit - (static_cast<float>(count) * frequency_penalty_ + presence_penalty_);
}

// Scans the row under the bias and the penalties for `counts`: a merge of two lists in order of
// token.
void Sampler::scan(std::span<const float> logits, std::span<const TokenWindow::Count> counts) {
  overrides_.clear();
  auto bias = bias_.begin();
  auto count = counts.begin();
  while (bias != bias_.end() || count != counts.end()) {
    const bool biased =
        bias != bias_.end() && (count == counts.end() || bias->token <= count->token);
    const bool counted =
        count != counts.end() && (bias == bias_.end() || count->token <= bias->token);
    const Token token = biased ? bias->token : count->token;
    float logit = logits[static_cast<std::size_t>(token)];
    if (biased) logit = bounded(logit + (bias++)->logit);
    if (counted) logit = bounded(penalised(logit, (count++)->count));
    overrides_.push_back({token, logit});
  }
  scan_.reset(logits, overrides_);
  if (scan_.max() == kMinusInfinity) {
    throw BackendError(
        "logits: got no finite value, expected at least one, "
        "check logit_bias for bans and the model for damage");
  }
  if (scan_.max() > kLargest) {
    throw BackendError(
        "logits: got infinity, expected finite values, "
        "check the model file and the type of the KV cache");
  }
}

Token Sampler::sample(std::span<const float> logits, std::int32_t n_top, TokenLogprob* logprobs) {
  if (logits.size() != static_cast<std::size_t>(n_vocab_)) {
    throw BackendError("logits: got " + std::to_string(logits.size()) + " values, expected " +
                       std::to_string(n_vocab_) + ", one for each token");
  }
  const bool penalties = penalties_ && !window_.counts().empty();
  float max = 0;
  float log_mass = 0;
  // In this order, so that nothing is lost where logits are large; always finite, as JSON wants it.
  const auto logprob = [&](float logit) {
    return std::max((logit - max) - log_mass, std::numeric_limits<float>::lowest());
  };
  if (logprobs != nullptr || !penalties) scan(logits, {});
  if (logprobs != nullptr) {
    max = scan_.max();
    log_mass = static_cast<float>(std::log(scan_.mass(1)));
    logprobs->top.clear();
    if (n_top > 0) {
      scan_.top(static_cast<std::size_t>(n_top), candidates_);
      std::sort(candidates_.begin(), candidates_.end(), more_likely);
      for (const Candidate& c : candidates_) {
        logprobs->top.emplace_back(c.token, logprob(c.logit));
      }
    }
  }
  if (penalties) scan(logits, window_.counts());

  const Token token = temperature_ > 0 ? draw() : scan_.argmax();
  if (logprobs != nullptr) {
    logprobs->token = token;
    logprobs->logprob = logprob(biased(logits, token));
  }
  return token;
}

std::size_t Sampler::n_likeliest() const noexcept {
  if (penalties_ || !bias_.empty()) return 0;
  return temperature_ > 0 ? static_cast<std::size_t>(top_k_) : 1;
}

float Sampler::biased(std::span<const float> logits, Token token) const {
  const auto bias = std::lower_bound(bias_.begin(), bias_.end(), token,
                                     [](const auto& b, Token t) { return b.token < t; });
  const float logit = logits[static_cast<std::size_t>(token)];
  if (bias == bias_.end() || bias->token != token) return logit;
  return bounded(logit + bias->logit);
}

double Sampler::weigh(float inverse_temperature) {
  double total = 0;
  for (Candidate& c : candidates_) {
    c.weight = exp_of_negative((c.logit - scan_.max()) * inverse_temperature);
    total += c.weight;
  }
  return total;
}

// Gathers candidates, the likeliest of the whole row, until their weights reach `target`; none
// below `threshold`. Most rows need a few of them only, so it looks further down step by step.
void Sampler::gather_nucleus(double target, float threshold) {
  // Top-p drops all below the bound for certain: even n such tokens weigh less together than it may
  // drop. The little more is for rounding.
  const double spare = target * (1 / double{top_p_} - 1) / n_vocab_;
  const auto bound = static_cast<float>(double{scan_.max()} + std::log(spare) - 0.01);
  const float lowest = std::max(threshold, bound);
  for (float depth = 4;; depth *= 2) {
    const float from = std::max(scan_.max() - depth, lowest);
    scan_.at_least(from, candidates_);
    if (weigh(1) >= target || from == lowest) return;
  }
}

Token Sampler::draw() {
  const double u = rng_.uniform();
  // Below the smallest temperature that has a finite inverse only the largest logit has any weight.
  const float inverse_temperature =
      static_cast<float>(std::min(1.0 / static_cast<double>(temperature_), double{kLargest}));
  const bool limited = top_k_ > 0 && top_k_ < n_vocab_;
  const float min_p_threshold = min_p_ > 0 ? scan_.max() + std::log(min_p_) : kMinusInfinity;
  if (!limited && top_p_ >= 1 && min_p_ <= 0) {
    return scan_.pick(u * scan_.mass(inverse_temperature));
  }

  if (limited) {
    scan_.top(static_cast<std::size_t>(top_k_), candidates_);
    if (top_p_ < 1) cut_top_p(weigh(1) * double{top_p_});
  } else if (top_p_ < 1) {
    const double target = scan_.mass(1) * double{top_p_};
    gather_nucleus(target, min_p_threshold);
    cut_top_p(target);
  } else {
    scan_.at_least(min_p_threshold, candidates_);
  }
  if (min_p_ > 0) {
    std::erase_if(candidates_, [&](const Candidate& c) { return c.logit < min_p_threshold; });
  }

  const double target = u * weigh(inverse_temperature);
  Token token = 0;
  double sum = 0;
  for (const Candidate& c : candidates_) {
    if (c.weight == 0) continue;
    token = c.token;
    sum += c.weight;
    if (sum > target) break;
  }
  return token;
}

// Keeps the shortest run of likeliest candidates whose weights reach `target`; all where they do
// not. Selection rather than sorting: each round halves the range that holds the last one kept.
void Sampler::cut_top_p(double target) {
  selection_ = candidates_;
  auto low = selection_.begin();
  auto high = selection_.end();
  while (high - low > 16) {
    const auto middle = low + (high - low) / 2;
    std::nth_element(low, middle, high, more_likely);
    double mass = 0;
    for (auto it = low; it != middle; ++it) mass += it->weight;
    if (mass >= target) {
      high = middle;
    } else {
      target -= mass;
      low = middle;
    }
  }
  std::sort(low, high, more_likely);
  auto last = low;
  while (last != high - 1 && (target -= last->weight) > 0) ++last;
  const Candidate kept = *last;
  std::erase_if(candidates_, [&kept](const Candidate& c) { return more_likely(kept, c); });
}

}  // namespace pronk::inline v0
