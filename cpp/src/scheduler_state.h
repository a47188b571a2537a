// What permits, tickets and the scheduler object share: the gate, and the pool once there is one.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "decode_loop.h"
#include "gate.h"
#include "pool_maker.h"
#include "process.h"
#include "pronk/scheduler.h"
#include "trace.h"

namespace pronk::inline v0 {

/// Throws InvalidArgumentError for null.
void check_engine(const std::shared_ptr<InferenceEngine>& engine);

class SchedulerState : public std::enable_shared_from_this<SchedulerState> {
 public:
  /// `reason`: why max_concurrent is what it is, where it was not asked for.
  explicit SchedulerState(const SchedulerOptions& options, std::string reason = {});
  ~SchedulerState();

  using LookUp = std::function<void()>;

  void set_pool(std::shared_ptr<InferenceEngine> engine, const PoolOptions& options);
  /// Takes back set_pool() after the lanes could not be created.
  void unset_pool();
  /// Takes a pool that was made elsewhere. Where its thread was not started, its owner makes the
  /// steps by hand.
  void adopt_pool(std::shared_ptr<InferenceEngine> engine, std::shared_ptr<DecodeLoop> loop);
  /// Creates the lanes unless they exist. Throws PoolNotInitialisedError without an engine.
  /// `look_up` is called now and then during the wait; what it throws ends the call, and the
  /// creation unless another call waits for it.
  std::shared_ptr<DecodeLoop> pool(const LookUp& look_up = {});
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
  std::vector<DeviceMemory> memory() const;
  bool close(bool drain, std::optional<Duration> timeout, const LookUp& look_up = {});

  const std::shared_ptr<Clock> clock;
  const std::shared_ptr<Trace> trace;
  const std::shared_ptr<Gate> gate;
  const ProcessBound process;

 private:
  struct Ending {
    std::shared_ptr<DecodeLoop> loop;
    std::shared_ptr<PoolMaker> maker;
  };
  using Lock = std::lock_guard<std::mutex>;

  std::shared_ptr<DecodeLoop> open_pool(const Lock&) const;
  void start_maker(const Lock&);
  Ending begin_close();

  const std::int32_t max_concurrent_;  // at the start: a pool has at least so many lanes
  const std::string max_concurrent_reason_;
  std::atomic<std::uint64_t> n_generations_{0};  // made so far
  mutable std::mutex mutex_;
  std::shared_ptr<InferenceEngine> engine_;  // guarded by mutex_
  PoolOptions options_;                      // guarded by mutex_
  std::shared_ptr<DecodeLoop> loop_;         // guarded by mutex_
  std::shared_ptr<PoolMaker> maker_;         // guarded by mutex_; makes what will be loop_
  std::int32_t n_making_ = 0;                // guarded by mutex_; the lanes it makes
  std::int32_t n_wanting_ = 0;               // guarded by mutex_; calls that wait for it
  bool closed_ = false;                      // guarded by mutex_
  std::mutex sizing_;  // held while the number of lanes or permits is settled; before mutex_
};

}  // namespace pronk::inline v0
