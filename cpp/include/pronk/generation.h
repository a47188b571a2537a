// One running completion.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "pronk/api.h"
#include "pronk/chat.h"
#include "pronk/completion.h"
#include "pronk/mailbox.h"

namespace pronk::inline v0 {

class GenerationState;

/// What next_for() found.
enum class StreamStatus : int {
  kPiece,    ///< text arrived
  kEnd,      ///< the generation has ended and all its text was taken
  kTimeout,  ///< nothing arrived in time
};

/// A handle: move-only; dropping it unfinished cancels the generation. All functions may be called
/// from any thread, text is handed out once.
class PRONK_API Generation {
 public:
  /// For pronk itself.
  Generation(std::shared_ptr<GenerationState> state, std::shared_ptr<void> keep_alive) noexcept;
  ~Generation();
  Generation(Generation&&) noexcept;
  Generation& operator=(Generation&&) noexcept;

  /// Moves the text that has arrived since the last call into `piece`: whole UTF-8, never a part of
  /// a stop string. Waits up to `timeout` for some; zero only looks. Time is the scheduler's,
  /// except that the wait ends after `slice` of real time too, for callers that have to look after
  /// something else. Throws what ended the generation if it failed, and GenerationCancelled if it
  /// was cancelled, once all text before that was taken.
  StreamStatus next_for(std::string& piece, std::chrono::nanoseconds timeout,
                        std::chrono::nanoseconds slice = std::chrono::nanoseconds::max());
  /// Waits for the next text; none at the end. Throws as next_for() does.
  std::optional<std::string> next();
  /// The same for a chat: all that came to the message since the last call, not its content alone.
  /// Throws InvalidArgumentError for what is no chat.
  StreamStatus next_delta_for(ChatDelta& delta, std::chrono::nanoseconds timeout,
                              std::chrono::nanoseconds slice = std::chrono::nanoseconds::max());
  std::optional<ChatDelta> next_delta();
  /// Whether it answers a chat. Its text is then the content of the message, which is read out of
  /// what the model says on the thread that asks for it: a matter of microseconds to milliseconds.
  bool is_chat() const noexcept;

  /// True once the generation has ended, whatever way.
  bool wait_for(std::chrono::nanoseconds timeout,
                std::chrono::nanoseconds slice = std::chrono::nanoseconds::max()) const;
  /// Time since the call that made it, on the scheduler's clock.
  std::chrono::nanoseconds age() const;
  /// Whether it has ended, whatever way. Never waits.
  bool done() const;
  /// The completion, waiting for the end. A cancelled generation gives what it had, with
  /// finish_reason kCancelled. Throws what ended the generation if it failed.
  Completion result() const;
  /// All text so far, taken or not.
  std::string text() const;

  /// Ends the generation within one decode step. Idempotent, never blocks.
  void cancel() noexcept;

  /// Tells `listener` whenever text arrives and at the end; at once if there is something already.
  /// One listener.
  void listen(Listener listener);

 private:
  std::shared_ptr<GenerationState> state_;
  std::shared_ptr<void> keep_alive_;  // the scheduler that runs it
};

}  // namespace pronk::inline v0
