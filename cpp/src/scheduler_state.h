// What permits, tickets and the scheduler object share: the gate, and the pool once there is one.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "decode_loop.h"
#include "gate.h"
#include "process.h"
#include "pronk/scheduler.h"
#include "trace.h"

namespace pronk::inline v0 {

class SchedulerState : public std::enable_shared_from_this<SchedulerState> {
 public:
  explicit SchedulerState(const SchedulerOptions& options);
  ~SchedulerState();

  void set_pool(std::shared_ptr<InferenceEngine> engine, const PoolOptions& options);
  /// Takes back set_pool() after the lanes could not be created.
  void unset_pool();
  /// Takes a pool that was made elsewhere. Where its thread was not started, its owner makes the
  /// steps by hand.
  void adopt_pool(std::shared_ptr<InferenceEngine> engine, std::shared_ptr<DecodeLoop> loop);
  /// Creates the lanes unless they exist. Throws PoolNotInitialisedError without an engine.
  std::shared_ptr<DecodeLoop> pool();
  std::shared_ptr<InferenceEngine> engine() const;
  void resize(std::int32_t max_concurrent);

  /// Checks prompt and parameters and makes a generation of them, not submitted yet.
  std::shared_ptr<GenerationState> make_generation(std::vector<Token> prompt,
                                                   const GenerationParams& params,
                                                   ChatReply reply = {},
                                                   const GrammarSpec& grammar = {});
  std::shared_ptr<GenerationState> make_chat(std::string_view messages, const ChatParams& chat,
                                             const GenerationParams& params);
  /// Has a generation wait for a permit of its own.
  Generation queue(std::shared_ptr<GenerationState> generation, std::int32_t priority);
  std::vector<Token> tokenize(std::string_view prompt);

  void fill(Statistics& statistics) const;
  bool close(bool drain, std::optional<Duration> timeout,
             const std::function<void()>& look_up = {});

  const std::shared_ptr<Clock> clock;
  const std::shared_ptr<Trace> trace;
  const std::shared_ptr<Gate> gate;
  const ProcessBound process;

 private:
  std::shared_ptr<DecodeLoop> begin_close();

  const std::int32_t max_concurrent_;            // at the start: a pool has at least so many lanes
  std::atomic<std::uint64_t> n_generations_{0};  // made so far
  mutable std::mutex mutex_;
  std::shared_ptr<InferenceEngine> engine_;  // guarded by mutex_
  PoolOptions options_;                      // guarded by mutex_
  std::shared_ptr<DecodeLoop> loop_;         // guarded by mutex_
  bool closed_ = false;                      // guarded by mutex_
  std::mutex creating_;  // held while the contexts are created; taken before mutex_
};

}  // namespace pronk::inline v0
