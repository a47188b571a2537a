#include "pronk/generation.h"

#include <utility>

#include "generation_state.h"

namespace pronk::inline v0 {

Generation::Generation(std::shared_ptr<GenerationState> state,
                       std::shared_ptr<void> keep_alive) noexcept
    : state_(std::move(state)), keep_alive_(std::move(keep_alive)) {}
Generation::~Generation() {
  if (state_) state_->cancel();
}
Generation::Generation(Generation&&) noexcept = default;
Generation& Generation::operator=(Generation&& other) noexcept {
  if (this != &other) {
    if (state_) state_->cancel();
    state_ = std::move(other.state_);
    keep_alive_ = std::move(other.keep_alive_);
  }
  return *this;
}

StreamStatus Generation::next_for(std::string& piece, std::chrono::nanoseconds timeout,
                                  std::chrono::nanoseconds slice) {
  return state_->next_for(piece, timeout, slice);
}

std::optional<std::string> Generation::next() {
  std::string piece;
  if (state_->next_for(piece, Duration::max()) == StreamStatus::kEnd) return std::nullopt;
  return piece;
}

StreamStatus Generation::next_delta_for(ChatDelta& delta, std::chrono::nanoseconds timeout,
                                        std::chrono::nanoseconds slice) {
  return state_->next_delta_for(delta, timeout, slice);
}

std::optional<ChatDelta> Generation::next_delta() {
  ChatDelta delta;
  if (state_->next_delta_for(delta, Duration::max()) == StreamStatus::kEnd) return std::nullopt;
  return delta;
}

bool Generation::is_chat() const noexcept { return state_->is_chat(); }

bool Generation::wait_for(std::chrono::nanoseconds timeout, std::chrono::nanoseconds slice) const {
  return state_->wait_for(timeout, slice);
}
std::chrono::nanoseconds Generation::age() const { return state_->age(); }
bool Generation::done() const { return state_->done(); }
Completion Generation::result() const { return state_->result(); }
std::string Generation::text() const { return state_->text(); }
void Generation::cancel() noexcept { state_->cancel(); }
void Generation::listen(Listener listener) { state_->listen(std::move(listener)); }

}  // namespace pronk::inline v0
