#include "token_window.h"

#include <algorithm>

namespace pronk::inline v0 {
namespace {

// Above this many new tokens counting anew is cheaper than keeping order with each.
constexpr std::size_t kRecountFrom = 256;
// A window up to this long gets its memory at once, so that it never grows while tokens are
// sampled.
constexpr std::size_t kReserve = 1024;

bool less(const TokenWindow::Count& entry, Token token) { return entry.token < token; }

}  // namespace

TokenWindow::TokenWindow(std::int32_t last_n)
    : last_n_(last_n > 0 ? static_cast<std::size_t>(last_n) : 0), bounded_(last_n >= 0) {
  const std::size_t size = bounded_ ? std::min(last_n_, kReserve) : kReserve;
  history_.reserve(size);
  counts_.reserve(size + 1);  // the new token comes in before the oldest goes
}

void TokenWindow::add(Token token) {
  if (bounded_ && last_n_ == 0) return;
  increment(token);
  if (full()) decrement(history_[oldest_]);
  remember(token);
}

void TokenWindow::add(std::span<const Token> tokens) {
  if (bounded_ && tokens.size() > last_n_) tokens = tokens.last(last_n_);
  if (tokens.size() < kRecountFrom) {
    for (const Token token : tokens) add(token);
    return;
  }
  for (const Token token : tokens) remember(token);
  std::vector<Token> sorted = history_;
  std::sort(sorted.begin(), sorted.end());
  counts_.clear();
  for (const Token token : sorted) {
    if (counts_.empty() || counts_.back().token != token) counts_.push_back({token, 0});
    ++counts_.back().count;
  }
}

void TokenWindow::remember(Token token) {
  if (!full()) {
    history_.push_back(token);
    return;
  }
  history_[oldest_] = token;
  oldest_ = oldest_ + 1 == last_n_ ? 0 : oldest_ + 1;
}

void TokenWindow::increment(Token token) {
  const auto it = std::lower_bound(counts_.begin(), counts_.end(), token, less);
  if (it != counts_.end() && it->token == token) {
    ++it->count;
  } else {
    counts_.insert(it, {token, 1});
  }
}

void TokenWindow::decrement(Token token) {
  const auto it = std::lower_bound(counts_.begin(), counts_.end(), token, less);
  if (--it->count == 0) counts_.erase(it);
}

}  // namespace pronk::inline v0
