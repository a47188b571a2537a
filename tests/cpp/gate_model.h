// The gate as the documentation describes it, in the plainest words: what the real one is compared
// with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "pronk/scheduler.h"

namespace simulation {

struct GateModel {
  struct Waiter {
    std::uint64_t id = 0;
    std::int32_t priority = 0;
    std::int64_t enqueued = 0;  // ns
    std::uint64_t owner = 0;
  };
  enum class Answer { kOk, kClosed, kDeadlock, kFull };

  std::int32_t max = 1;
  std::optional<std::int32_t> max_waiting;
  std::int64_t ageing = 0;  // ns for one level of priority; 0 never

  std::int32_t active = 0;
  std::int32_t high_water = 0;
  std::uint64_t acquired = 0, released = 0, timed_out = 0, abandoned = 0;
  std::int64_t waited = 0;  // ns, by those that were granted
  bool refusing = false;
  std::vector<Waiter> waiting;  // in order of arrival
  std::map<std::uint64_t, std::int32_t> held;
  std::map<std::uint64_t, std::uint64_t>
      granted;  // tickets granted and not taken, with their owner
  /// Told of every grant, in order.
  std::function<void(std::uint64_t id)> on_grant = [](std::uint64_t) {};

  void hold(std::uint64_t owner) {
    ++active;
    ++acquired;
    high_water = std::max(high_water, active);
    ++held[owner];
  }

  /// The permit is on its way back: it counts as nobody's until then.
  void disown(std::uint64_t owner) {
    --held[owner];
    ++held[0];
  }

  void release(std::uint64_t owner, std::int64_t now) {
    --active;
    ++released;
    --held[owner];
    grant(now);
  }

  /// Who is first: the one whose priority, raised by waiting, is highest now; of equals the one who
  /// came first.
  std::size_t first(std::int64_t now) const {
    const auto level = [&](const Waiter& w) {
      // Times the ageing, to stay in integers.
      return ageing == 0 ? std::int64_t{w.priority} : ageing * w.priority + (now - w.enqueued);
    };
    std::size_t best = 0;
    for (std::size_t i = 1; i < waiting.size(); ++i) {
      if (level(waiting[i]) > level(waiting[best])) best = i;
    }
    return best;
  }

  void grant(std::int64_t now) {
    while (active < max && !waiting.empty()) {
      const std::size_t i = first(now);
      const Waiter waiter = waiting[i];
      waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(i));
      hold(waiter.owner);
      waited += now - waiter.enqueued;
      granted[waiter.id] = waiter.owner;
      on_grant(waiter.id);
    }
  }

  /// What enqueue() would answer.
  Answer may_enqueue(std::uint64_t owner) const {
    if (refusing) return Answer::kClosed;
    if (owner != 0 && active > 0 && active >= max) {
      const auto it = held.find(owner);
      if (it != held.end() && it->second == active) return Answer::kDeadlock;
    }
    const bool must_wait = active >= max || !waiting.empty();
    if (must_wait && max_waiting && static_cast<std::int32_t>(waiting.size()) >= *max_waiting)
      return Answer::kFull;
    return Answer::kOk;
  }

  void enqueue(const Waiter& waiter, std::int64_t now) {
    waiting.push_back(waiter);
    grant(now);
  }

  bool may_try() const { return active < max && waiting.empty(); }

  bool is_waiting(std::uint64_t id) const {
    return std::any_of(waiting.begin(), waiting.end(), [&](const Waiter& w) { return w.id == id; });
  }

  void cancel(std::uint64_t id, bool timeout, std::int64_t now) {
    if (is_waiting(id)) {
      std::erase_if(waiting, [&](const Waiter& w) { return w.id == id; });
      ++(timeout ? timed_out : abandoned);
      grant(now);
    } else if (const auto it = granted.find(id); it != granted.end()) {
      const std::uint64_t owner = it->second;
      granted.erase(it);
      ++(timeout ? timed_out : abandoned);
      release(owner, now);
    }
  }
};

}  // namespace simulation
