// The state of one simulation. What it does is in simulation.cpp, what it checks in
// simulation_checks.cpp.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "by_hand.h"
#include "gate_model.h"
#include "simulation.h"

namespace simulation {

using by_hand::Tokens;

constexpr std::int32_t kLetters =
    8;  // a small vocabulary makes common prefixes common, and logits cheap

class World {
 public:
  explicit World(std::uint64_t seed);
  Report run(std::int64_t steps);

 private:
  struct Shape {
    pronk::testing::ScriptedOptions model;
    pronk::SchedulerOptions gate;
    pronk::PoolOptions pool;
    bool faults = false;
  };

  /// A ticket of a blocked thread (with or without a timeout) or of a task (with a mailbox).
  struct Place {
    pronk::Ticket ticket;
    std::uint64_t owner = 0;
    std::optional<std::int64_t> deadline;  // ns
    bool listens = false;
    bool told = false;  // its key came out of the mailbox
  };
  struct Held {
    pronk::InferencePermit permit;
    std::uint64_t owner = 0;
    std::uint64_t running = 0;  // request, 0 for none
  };
  struct Request {
    std::optional<pronk::Generation> generation;  // none once the handle is dropped
    Tokens whole;                                 // what it says if nobody stops it
    std::string taken;                            // streamed so far
    std::uint64_t permit = 0;                     // of which it is, 0 for one of its own
    bool cancelled = false;
    bool dropped_permit = false;  // released while it ran: its end gives the permit back
    std::uint64_t owner = 0;
    std::uint64_t cancelled_at = 0;  // loop steps then
    bool listens = false;
    bool told = false;
    bool settled = false;  // its end was seen
  };

  std::uint64_t up_to(std::uint64_t n) { return random_() % n; }
  bool one_in(std::uint64_t n) { return up_to(n) == 0; }
  std::int64_t now() const { return rig_.clock.now().count(); }
  [[noreturn]] void fail(const std::string& what) const {
    throw Failure("step " + std::to_string(steps_) + ": " + what);
  }
  void check(bool good, const char* what) const {
    if (!good) fail(what);
  }
  void equal(const char* what, std::int64_t got, std::int64_t expected) const;
  template <class Map>
  auto any(Map& map) {
    return std::next(map.begin(), static_cast<std::ptrdiff_t>(up_to(map.size())));
  }

  Shape draw_shape();
  void step(bool open);
  void loop_step();
  void end();
  Report report();

  void enqueue();
  void try_acquire();
  void acquire_now();
  void take();
  void give_up_place();
  void drop_place(std::map<std::uint64_t, Place>::iterator it, bool timeout);
  void start_queued();
  void start_in_permit();
  void release();
  void drop_permit(std::map<std::uint64_t, Held>::iterator it);
  void cancel();
  void stream();
  void pass_time();
  void resize();
  void add_fault();
  void fetch_mail();

  std::uint64_t add_request(Tokens prompt, const pronk::GenerationParams& params);
  Tokens draw_prompt();
  pronk::GenerationParams draw_params();
  void mark_cancelled(Request& request);
  bool has_ended(const Request& request) const;
  void settle(Request& request);
  void settle_all();
  void check_request(const Request& request) const;
  void check_gate();
  void check_places();
  void check_lanes();

  std::mt19937_64 random_;
  const Shape shape_;
  by_hand::Scheduler rig_;
  GateModel gate_;
  const std::shared_ptr<pronk::Mailbox> mailbox_ = std::make_shared<pronk::Mailbox>();
  std::map<std::uint64_t, Place> places_;
  std::map<std::uint64_t, Held> permits_;
  std::map<std::uint64_t, Request> requests_;
  std::uint64_t next_id_ = 1;
  std::uint64_t steps_ = 0;
  std::uint64_t loop_steps_ = 0;
  std::uint64_t submitted_ = 0;  // requests that had a permit when they ended
  bool closed_ = false;
};

}  // namespace simulation
