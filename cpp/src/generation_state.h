// One generation as the decode loop and its consumer share it: the loop appends, the consumer
// takes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "clock.h"
#include "grammar.h"
#include "process.h"
#include "pronk/completion.h"
#include "pronk/generation.h"
#include "pronk/mailbox.h"
#include "pronk/params.h"
#include "reply_stream.h"
#include "trace.h"

namespace pronk::inline v0 {

class TicketState;

/// What makes a generation the answer to a chat.
struct ChatReply {
  std::vector<Token> shown;  ///< control tokens whose spelling belongs to the text; ascending
  std::unique_ptr<ReplyStream> stream;
};

class GenerationState {
 public:
  GenerationState(std::vector<Token> prompt_in, const GenerationParams& params_in,
                  std::shared_ptr<Clock> clock, ChatReply reply = {});

  const std::vector<Token> prompt;
  const GenerationParams params;
  const std::shared_ptr<Clock> clock;
  const TimePoint created;
  const ProcessBound process;

  // --- the consumer's side; any thread
  StreamStatus next_for(std::string& piece, Duration timeout, Duration slice = Duration::max());
  StreamStatus next_delta_for(ChatDelta& delta, Duration timeout, Duration slice = Duration::max());
  bool is_chat() const noexcept { return reply_ != nullptr; }
  bool wait_for(Duration timeout, Duration slice = Duration::max()) const;
  Duration age() const { return clock->now() - created; }
  bool done() const;
  Completion result() const;
  std::string text() const;
  void listen(Listener listener);
  void cancel() noexcept;
  bool cancel_requested() const noexcept {
    return cancel_requested_.load(std::memory_order_acquire);
  }

  /// Counts the generations of a scheduler from 1, and where to record this one; none: nowhere.
  /// Set once, before the state is shared.
  std::uint64_t number = 0;
  std::shared_ptr<Trace> trace;
  /// What the text follows; none: nothing. Set once, before the state is shared; the run takes it.
  std::unique_ptr<Grammar> grammar;
  /// What cancel() does besides raising the flag: wakes the loop, or leaves the queue. Set once,
  /// before the state is shared.
  std::function<void()> on_cancel;
  /// Runs once when the lane is settled, before anyone can see the end; at once if that is past.
  void when_ended(std::function<void()> function);

  // --- the decode loop's side
  /// Whether a control token is spelled out in the text.
  bool shows(Token token) const noexcept;
  /// The first step that works on it begins. `lane` is where, for the trace.
  void started(std::int32_t cached_tokens, std::int32_t lane);
  void prefilled();  ///< the whole prompt is evaluated
  /// A token and the text that became certain with it. Returns the mailbox to ring, if any.
  std::shared_ptr<Mailbox> append(Token token, std::string_view text, TokenLogprob* logprob);
  /// Text that was held back, at the end.
  void append_text(std::string_view text);
  std::shared_ptr<Mailbox> finish(FinishReason reason);
  std::shared_ptr<Mailbox> fail(std::exception_ptr error);

 private:
  std::shared_ptr<Mailbox> post();
  std::shared_ptr<Mailbox> end(FinishReason reason, std::exception_ptr error);
  void trace_end() const;
  template <class Take>
  StreamStatus next_of_reply(const Take& take, Duration timeout, Duration slice);
  bool read_reply() const;
  StreamStatus end_of_stream() const;

  std::atomic<bool> cancel_requested_{false};
  const std::vector<Token> shown_;

  // Chats only. Reading takes time, so that the decode thread must not wait for it.
  mutable std::mutex reply_mutex_;            // taken before mutex_
  const std::unique_ptr<ReplyStream> reply_;  // what it points to is guarded by reply_mutex_

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  Completion completion_;     // guarded by mutex_
  std::size_t taken_ = 0;     // guarded by mutex_; bytes of the text that next_for() handed out
  bool ending_ = false;       // guarded by mutex_; the end has begun, nothing more is appended
  bool done_ = false;         // guarded by mutex_; the end is there for all to see
  bool started_ = false;      // guarded by mutex_
  std::int32_t lane_ = 0;     // guarded by mutex_
  std::exception_ptr error_;  // guarded by mutex_
  Listener listener_;         // guarded by mutex_
  std::function<void()> when_ended_;  // guarded by mutex_
  TimePoint started_at_{};            // guarded by mutex_
  TimePoint prefilled_at_{};          // guarded by mutex_
  TimePoint first_token_at_{};        // guarded by mutex_
};

}  // namespace pronk::inline v0
