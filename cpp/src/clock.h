// Time as the core sees it. Injectable, so that a test moves it by hand.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

namespace pronk::inline v0 {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

/// A time of the system's own steady clock, whatever Clock is in use.
using RealTime = std::chrono::steady_clock::time_point;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
  /// Waits on `condition` until notified, until now() reaches `deadline`, or until the real time
  /// `latest`, for callers that have to look up from their wait whatever this clock does. Spurious
  /// returns happen.
  virtual void wait_until(std::condition_variable& condition, std::unique_lock<std::mutex>& lock,
                          TimePoint deadline, RealTime latest = RealTime::max()) = 0;

  static std::shared_ptr<Clock> steady();
};

inline double to_seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

/// How long a wait goes on before it lets its caller look after something else, such as signals.
inline constexpr Duration kLookUpEvery = std::chrono::milliseconds(50);

/// The real time after `slice`, without overflow.
inline RealTime real_time_after(Duration slice) {
  const RealTime now = std::chrono::steady_clock::now();
  return slice > RealTime::max() - now ? RealTime::max() : now + slice;
}

/// now() + timeout without overflow: a timeout too large to add means "never".
inline TimePoint deadline_after(TimePoint now, Duration timeout) {
  return timeout > TimePoint::max() - now ? TimePoint::max() : now + timeout;
}

}  // namespace pronk::inline v0
