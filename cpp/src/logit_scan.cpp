#include "logit_scan.h"

#include <algorithm>
#include <functional>

namespace pronk::inline v0 {
namespace {

constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Running values side by side: the compiler may not reorder float operations, so it can only use
// vector registers where the code itself keeps the values apart.
constexpr std::size_t kLanes = 16;

// Written so that NaN never wins.
inline float larger(float a, float b) noexcept { return b > a ? b : a; }

float max_of(const float* values, std::size_t size) noexcept {
  float best[kLanes];
  for (float& value : best) value = kMinusInfinity;
  std::size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) best[j] = larger(best[j], values[i + j]);
  }
  for (; i < size; ++i) best[0] = larger(best[0], values[i]);
  for (std::size_t step = kLanes / 2; step > 0; step /= 2) {
    for (std::size_t j = 0; j < step; ++j) best[j] = larger(best[j], best[j + step]);
  }
  return best[0];
}

float mass_of(const float* values, std::size_t size, float max, float scale) noexcept {
  float sum[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) {
      sum[j] += exp_of_negative((values[i + j] - max) * scale);
    }
  }
  for (; i < size; ++i) sum[0] += exp_of_negative((values[i] - max) * scale);
  for (std::size_t step = kLanes / 2; step > 0; step /= 2) {
    for (std::size_t j = 0; j < step; ++j) sum[j] += sum[j + step];
  }
  return sum[0];
}

}  // namespace

LogitScan::Block LogitScan::block(std::size_t index) noexcept {
  const std::size_t first = index * kBlock;
  const std::size_t size = std::min(kBlock, logits_.size() - first);
  const float* values = logits_.data() + first;
  // Blocks are mostly asked for in order, so the search goes on from the last one.
  if (cursor_ > 0 && static_cast<std::size_t>(overrides_[cursor_ - 1].token) >= first) cursor_ = 0;
  const auto token = [this] { return static_cast<std::size_t>(overrides_[cursor_].token); };
  while (cursor_ < overrides_.size() && token() < first) ++cursor_;
  if (cursor_ < overrides_.size() && token() < first + size) {
    std::copy_n(values, size, patched_.data());
    for (; cursor_ < overrides_.size() && token() < first + size; ++cursor_) {
      patched_[token() - first] = overrides_[cursor_].logit;
    }
    values = patched_.data();
  }
  return {values, first, size};
}

void LogitScan::reset(std::span<const float> logits, std::span<const Override> overrides) {
  logits_ = logits;
  overrides_ = overrides;
  cursor_ = 0;
  max_ = kMinusInfinity;
  maxima_.resize((logits.size() + kBlock - 1) / kBlock);
  for (std::size_t i = 0; i < maxima_.size(); ++i) {
    const Block b = block(i);
    maxima_[i] = max_of(b.values, b.size);
    max_ = larger(max_, maxima_[i]);
  }
}

Token LogitScan::argmax() {
  const auto best = std::find(maxima_.begin(), maxima_.end(), max_);
  const Block b = block(static_cast<std::size_t>(best - maxima_.begin()));
  const float* value = std::find(b.values, b.values + b.size, max_);
  return static_cast<Token>(b.first + static_cast<std::size_t>(value - b.values));
}

void LogitScan::at_least(float threshold, std::vector<Candidate>& out) {
  threshold = std::max(threshold, kLowest);  // -infinity is never possible
  out.clear();
  for (std::size_t i = 0; i < maxima_.size(); ++i) {
    if (maxima_[i] < threshold) continue;
    const Block b = block(i);
    for (std::size_t j = 0; j < b.size; ++j) {
      if (b.values[j] >= threshold) out.push_back({static_cast<Token>(b.first + j), b.values[j]});
    }
  }
}

void LogitScan::top(std::size_t k, std::vector<Candidate>& out) {
  float threshold = kLowest;
  if (k <= maxima_.size()) {
    // k blocks hold an entry of at least the k-th largest maximum, so the k likeliest tokens lie
    // above.
    order_ = maxima_;
    const auto kth = order_.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(order_.begin(), kth, order_.end(), std::greater<>());
    threshold = *kth;
  }
  at_least(threshold, out);
  if (out.size() <= k) return;
  // Found on a copy, so that the candidates stay in order of id: what nth_element leaves behind
  // differs between standard libraries, and a seed must not.
  selection_ = out;
  const auto last = selection_.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(selection_.begin(), last, selection_.end(), more_likely);
  std::erase_if(out, [&last](const Candidate& c) { return more_likely(*last, c); });
}

double LogitScan::mass(float inverse_temperature) {
  inverse_temperature_ = inverse_temperature;
  masses_.resize(maxima_.size());
  double total = 0;
  for (std::size_t i = 0; i < maxima_.size(); ++i) {
    masses_[i] = 0;
    if ((maxima_[i] - max_) * inverse_temperature > kExpUnderflow) {
      const Block b = block(i);
      masses_[i] = mass_of(b.values, b.size, max_, inverse_temperature);
    }
    total += masses_[i];
  }
  return total;
}

Token LogitScan::pick(double target) {
  std::size_t chosen = 0;
  double before = 0;  // mass of the blocks before the chosen one
  double sum = 0;
  for (std::size_t i = 0; i < masses_.size(); ++i) {
    if (masses_[i] == 0) continue;
    chosen = i;
    before = sum;
    sum += masses_[i];
    if (sum > target) break;
  }
  const Block b = block(chosen);
  Token token = 0;
  for (std::size_t j = 0; j < b.size; ++j) {
    const float weight = exp_of_negative((b.values[j] - max_) * inverse_temperature_);
    if (weight == 0) continue;
    token = static_cast<Token>(b.first + j);
    before += weight;
    if (before > target) break;
  }
  return token;
}

}  // namespace pronk::inline v0
