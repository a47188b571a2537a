// A permit that somebody holds.
#pragma once

#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "gate.h"
#include "generation_state.h"

namespace pronk::inline v0 {

class DecodeLoop;
class SchedulerState;

/// Gives one permit back to the gate exactly once: after its release, when nothing runs in it any
/// more.
class HeldPermit {
 public:
  HeldPermit(std::shared_ptr<Gate> gate, std::uint64_t owner)
      : gate_(std::move(gate)), owner_(owner) {}

  /// Lets `generation` run in the permit. Throws PermitReleasedError, PermitBusyError.
  void begin(std::shared_ptr<GenerationState> generation);
  /// What begin() announced has ended, or was never started.
  void end() noexcept;
  /// Idempotent. Cancels what runs.
  void release() noexcept;
  bool released() const noexcept;
  /// Belongs to nobody in particular from now on. Idempotent.
  void detach() noexcept;

 private:
  const std::shared_ptr<Gate> gate_;
  mutable std::mutex mutex_;
  std::uint64_t owner_;    // guarded by mutex_; whose permit the gate thinks it is
  bool released_ = false;  // guarded by mutex_
  std::shared_ptr<GenerationState> running_;  // guarded by mutex_
};

/// Behind the public handle. Only the handle keeps the scheduler alive: what the decode thread
/// holds, the permit alone, must not, since it would then have to wait for itself.
class PermitState : public std::enable_shared_from_this<PermitState> {
 public:
  PermitState(std::shared_ptr<SchedulerState> scheduler, std::uint64_t owner);
  /// The handle is gone.
  void drop_scheduler() noexcept { scheduler_ = nullptr; }

  Generation generate(std::string_view prompt, const GenerationParams& params);
  Generation generate(std::vector<Token> prompt, const GenerationParams& params);
  void create_pool(const std::function<void()>& look_up);
  Generation chat(std::string_view messages, const ChatParams& chat,
                  const GenerationParams& params);
  HeldPermit& held() noexcept { return held_; }

 private:
  void check_held() const;
  Generation run(const std::shared_ptr<DecodeLoop>& loop,
                 std::shared_ptr<GenerationState> generation);

  std::shared_ptr<SchedulerState> scheduler_;
  HeldPermit held_;
};

}  // namespace pronk::inline v0
