// What a simulation compares after each step, and its end.
#include <chrono>
#include <cmath>
#include <iterator>
#include <string>

#include "pronk/error.h"
#include "simulation_world.h"

namespace simulation {

using namespace std::chrono_literals;
using pronk::FinishReason;
using pronk::TicketStatus;

namespace {

std::string show(const char* what, std::int64_t got, std::int64_t expected) {
  return std::string(what) + ": got " + std::to_string(got) + ", expected " +
         std::to_string(expected);
}

}  // namespace

void World::equal(const char* what, std::int64_t got, std::int64_t expected) const {
  if (got != expected) fail(show(what, got, expected));
}

// The end of a request that had a permit.
void World::settle(Request& request) {
  request.settled = true;
  ++submitted_;
  if (request.permit != 0 && !request.dropped_permit) {
    permits_.at(request.permit).running = 0;
  } else {
    gate_.release(request.owner, now());
  }
}

// Of a dropped one nothing is left to ask, but one step is enough to end it.
bool World::has_ended(const Request& request) const {
  return request.generation ? request.generation->done() : loop_steps_ > request.cancelled_at;
}

void World::settle_all() {
  // In the order in which they had permits: one step may end a request, hand its permit on, and end
  // the next one too.
  for (bool again = true; again;) {
    again = false;
    for (auto& [id, request] : requests_) {
      if (request.settled || gate_.is_waiting(id) || !has_ended(request)) continue;
      settle(request);
      if (request.generation) check_request(request);
      again = true;
    }
  }
  for (auto it = requests_.begin(); it != requests_.end();) {
    const auto next = std::next(it);
    Request& request = it->second;
    if (!request.settled && has_ended(request)) {
      fail("generation " + std::to_string(it->first) + ": got its end while it waits for a permit");
    }
    if (!request.generation) {
      if (request.settled) requests_.erase(it);
    } else if (request.settled) {
      if (one_in(16)) {
        check_request(request);  // once more: an end is final
        requests_.erase(it);
      }
    } else {
      check(!request.cancelled || loop_steps_ == request.cancelled_at,
            "cancel: got a generation that outlives the next step");
    }
    it = next;
  }
}

void World::check_request(const Request& request) const {
  const std::string said = request.generation->text();
  std::string whole;
  for (const pronk::Token token : request.whole) whole += static_cast<char>('a' + token);
  bool complete = false;
  try {
    const pronk::Completion done = request.generation->result();
    complete = done.finish_reason != FinishReason::kCancelled;
    if (!complete)
      check(request.cancelled || closed_, "generation: got cancelled, nobody asked for it");
    equal("completion_tokens", done.usage.completion_tokens,
          static_cast<std::int64_t>(said.size()));
    if (done.usage.prompt_tokens > 0) {
      check(done.usage.cached_tokens < done.usage.prompt_tokens,
            "cached_tokens: got all of the prompt");
    }
  } catch (const pronk::BackendError&) {
    check(shape_.faults, "generation: got a backend error without a fault");
  } catch (const pronk::SchedulerClosedError&) {
    check(closed_, "generation: got closed while open");
  }
  if (said != (complete ? whole : whole.substr(0, said.size()))) {
    fail("text: got '" + said + "', expected " + (complete ? "" : "a beginning of ") + "'" + whole +
         "'");
  }
  check(said.starts_with(request.taken), "stream: got text that is not in the result");
}

void World::check_gate() {
  pronk::Statistics s;
  rig_.state->gate->fill(s);
  equal("active", s.active, gate_.active);
  equal("waiting", s.waiting, static_cast<std::int64_t>(gate_.waiting.size()));
  equal("max_concurrent", s.max_concurrent, gate_.max);
  equal("high_water", s.high_water, gate_.high_water);
  equal("acquired", static_cast<std::int64_t>(s.acquired),
        static_cast<std::int64_t>(gate_.acquired));
  equal("released", static_cast<std::int64_t>(s.released),
        static_cast<std::int64_t>(gate_.released));
  equal("acquired - released", static_cast<std::int64_t>(s.acquired - s.released), s.active);
  equal("timed_out", static_cast<std::int64_t>(s.timed_out),
        static_cast<std::int64_t>(gate_.timed_out));
  equal("abandoned", static_cast<std::int64_t>(s.abandoned),
        static_cast<std::int64_t>(gate_.abandoned));
  check(std::abs(s.wait_seconds - static_cast<double>(gate_.waited) * 1e-9) < 1e-6,
        "wait_seconds: got another sum");
  check(s.high_water <= shape_.gate.max_concurrent,
        "high_water: got more than there ever were permits");
  check(s.waiting == 0 || s.active >= s.max_concurrent || closed_,
        "gate: got a waiter beside a free permit");
}

void World::check_places() {
  for (auto& [id, place] : places_) {
    const auto expected = gate_.granted.contains(id) ? TicketStatus::kGranted
                          : gate_.is_waiting(id)     ? TicketStatus::kWaiting
                                                     : TicketStatus::kClosed;
    const TicketStatus got = place.ticket.status();
    if (got != expected)
      fail(show("status of a ticket", static_cast<int>(got), static_cast<int>(expected)));
  }
}

void World::check_lanes() {
  if (const std::string difference = rig_.difference(); !difference.empty()) fail(difference);
  std::int64_t busy = 0;
  for (const auto& sequence : rig_.loop->sequences().sequences()) busy += sequence->busy;
  std::int64_t running = 0;
  for (const auto& [id, request] : requests_) running += !request.settled && !gate_.is_waiting(id);
  check(busy <= running, "lanes: got more of them busy than generations have a permit");
  check(busy <= rig_.loop->n_lanes(), "lanes: got more of them busy than there are");
  if (loop_steps_ % 64 == 0) {
    if (const auto violations = rig_.model.violations(); !violations.empty())
      fail("misuse: " + violations.front());
  }
}

// ---- the end

void World::end() {
  const bool drain = one_in(2);
  if (drain) {
    // close(drain) would wait for the steps that only this thread makes, so it is called when they
    // are made.
    rig_.state->gate->refuse_new();
    gate_.refusing = true;
    for (int i = 0; i < 100; ++i) step(false);
    rig_.model.clear_faults();
    for (int i = 0; gate_.active > 0 || !gate_.waiting.empty(); ++i) {
      check(i < 10000, "drain: got no end");
      ++steps_;
      for (auto it = places_.begin(); it != places_.end();) {
        const auto next = std::next(it);
        if (gate_.granted.contains(it->first)) drop_place(it, false);
        it = next;
      }
      for (auto it = permits_.begin(); it != permits_.end();) {
        const auto next = std::next(it);
        if (it->second.running == 0) drop_permit(it);
        it = next;
      }
      loop_step();
      settle_all();
      check_gate();
      check_places();
    }
    check(rig_.scheduler->close(true, 0ns), "close: got false, expected it to end in time");
  } else {
    check(rig_.scheduler->close(false, 0ns), "close: got false, expected it to end in time");
    for (const GateModel::Waiter& waiter : gate_.waiting) {
      if (const auto it = requests_.find(waiter.id); it != requests_.end())
        it->second.settled = true;
    }
    gate_.waiting.clear();
    gate_.refusing = true;
  }
  closed_ = true;
  ++loop_steps_;  // the end of a loop ends what is cancelled
  for (auto& [id, request] : requests_) {
    if (request.generation)
      check(request.generation->done(), "close: got a generation that goes on");
  }
  fetch_mail();
  settle_all();
  for (const auto& [id, request] : requests_) {
    if (request.generation) check_request(request);
  }
  check_gate();
  check_places();
  while (!places_.empty()) give_up_place();
  while (!permits_.empty()) release();
  check_gate();
  equal("active at the end", gate_.active, 0);
  check(rig_.scheduler->close(one_in(2)), "close: got false when called again");
}

Report World::report() {
  const auto s = rig_.scheduler->statistics();
  const auto counters = rig_.model.counters();
  equal("generations", static_cast<std::int64_t>(s.generations),
        static_cast<std::int64_t>(submitted_));
  equal("generations by end", static_cast<std::int64_t>(s.completed + s.cancelled + s.failed),
        static_cast<std::int64_t>(s.generations));
  if (!shape_.faults) {
    equal("failed", static_cast<std::int64_t>(s.failed), 0);
    equal("evaluated_tokens", static_cast<std::int64_t>(s.evaluated_tokens),
          static_cast<std::int64_t>(counters.items));
  }
  equal("running", s.running, 0);
  if (const auto violations = rig_.model.violations(); !violations.empty())
    fail("misuse: " + violations.front());
  return {counters.decode_calls, s.generations, s.completed, s.cancelled, s.failed,
          s.reused_tokens,       s.acquired};
}

}  // namespace simulation
