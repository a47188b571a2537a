// Finds how many compute threads pay, while other work on the machine comes and goes.
#pragma once

#include <cstdint>

namespace pronk::inline v0 {

/// The threads of a graph meet at a barrier after each of its hundreds of nodes, spinning. As soon
/// as one of them has to share its CPU, all wait for it at every node: one thread more than there
/// are free CPUs can cost a factor of ten. So the number is found by trial: now and then a few
/// batches run alternately with another number, and the faster one stays. Pure: it knows no clock
/// but the times that it is told.
class ThreadGovernor {
 public:
  /// Starts at `most`, the threads that there are.
  explicit ThreadGovernor(std::int32_t most);

  /// The number for the next batch.
  std::int32_t n_threads() const noexcept { return trying_ && odd_ ? other_ : chosen_; }
  /// A batch of `n_tokens` took `seconds` with that number.
  void observe(std::int32_t n_tokens, double seconds);

 private:
  void watch(std::int32_t n_tokens, double seconds);
  void compare(std::int32_t n_tokens, double seconds);
  void begin_trial();
  void end_trial(bool faster);

  const std::int32_t most_;
  std::int32_t chosen_;

  // Between trials.
  double now_ = 0;  // seconds that batches took in all
  double next_trial_ = 0;
  double pause_ = 0;  // until the trial after the next, doubled by each that changes nothing
  std::int32_t n_watched_ = 0;  // batches of the same size in a row
  std::int32_t shape_ = 0;      // that size
  double usual_ = 0;            // smoothed time of such a batch
  double spread_ = 0;           // smoothed distance from that
  std::int32_t n_slow_ = 0;     // recent ones far above it
  bool upwards_ = false;        // the direction of the latest trial

  // In a trial: batches run alternately, with chosen_ first.
  bool trying_ = false;
  bool odd_ = false;
  std::int32_t other_ = 0;
  std::int32_t n_tried_ = 0;
  double chosen_seconds_ = 0;
  double other_seconds_ = 0;
};

}  // namespace pronk::inline v0
