// The right to run one inference at a time.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "pronk/api.h"
#include "pronk/chat.h"
#include "pronk/generation.h"
#include "pronk/params.h"

namespace pronk::inline v0 {

class PermitState;

/// RAII: the destructor releases. Move-only. Functions may be called from any thread; a moved-from
/// permit counts as released.
class PRONK_API InferencePermit {
 public:
  /// For pronk itself.
  explicit InferencePermit(std::shared_ptr<PermitState> state) noexcept;
  ~InferencePermit();
  InferencePermit(InferencePermit&&) noexcept;
  InferencePermit& operator=(InferencePermit&&) noexcept;

  /// Starts a completion of `prompt` and returns at once. Throws PermitReleasedError,
  /// PermitBusyError (one is running), PoolNotInitialisedError, InvalidArgumentError,
  /// ContextOverflowError, SchedulerClosedError.
  Generation generate(std::string_view prompt, const GenerationParams& params = {});
  /// The same for token ids, taken as they are: no BOS is added.
  Generation generate(std::vector<Token> prompt, const GenerationParams& params = {});
  /// Starts the answer to a chat: `messages` is a JSON array in the form of OpenAI's chat
  /// completions. Renders on the calling thread, a matter of milliseconds. Throws as generate()
  /// does.
  Generation chat(std::string_view messages, const ChatParams& chat = {},
                  const GenerationParams& params = {});

  /// Creates the lanes of its scheduler, which generate() would do, unless they exist; see
  /// InferenceScheduler::create_pool().
  void create_pool(const std::function<void()>& look_up = {});

  /// Gives the permit back: cancels what runs in it and hands the permit to the next waiter once
  /// the lane is settled. Idempotent, never blocks.
  void release() noexcept;
  /// Whether it was given back.
  bool released() const noexcept;
  /// Says that another thread or task will release the permit, so that who acquired it may wait for
  /// the next one without a DeadlockError. Idempotent, never blocks.
  void detach() noexcept;

 private:
  std::shared_ptr<PermitState> state_;
};

}  // namespace pronk::inline v0
