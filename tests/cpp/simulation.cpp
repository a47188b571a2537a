// What happens in a simulation.
#include "simulation.h"

#include <chrono>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "pronk/error.h"
#include "pronk/testing.h"
#include "simulation_world.h"

namespace simulation {

using namespace std::chrono_literals;
using pronk::MemoryKind;
using pronk::TicketStatus;
using pronk::testing::Fault;
using pronk::testing::FaultKind;
using pronk::testing::FaultPoint;

World::World(std::uint64_t seed)
    : random_(seed), shape_(draw_shape()), rig_(shape_.model, shape_.gate, shape_.pool) {
  gate_.max = shape_.gate.max_concurrent;
  gate_.max_waiting = shape_.gate.max_waiting;
  gate_.ageing = static_cast<std::int64_t>(shape_.gate.ageing_seconds * 1e9);
  gate_.on_grant = [this](std::uint64_t id) {
    // A queued generation takes its permit at once.
    if (requests_.contains(id)) gate_.granted.erase(id);
  };
}

Report World::run(std::int64_t steps) {
  for (std::int64_t i = 0; i < steps; ++i) step(true);
  end();
  return report();
}

World::Shape World::draw_shape() {
  Shape shape;
  for (char c = 'a'; c < 'a' + kLetters; ++c) shape.model.pieces.emplace_back(1, c);
  constexpr MemoryKind kinds[] = {MemoryKind::kPlain, MemoryKind::kSlidingWindow,
                                  MemoryKind::kRecurrent, MemoryKind::kHybrid};
  shape.model.memory_kind = kinds[up_to(4)];
  if (shape.model.memory_kind == MemoryKind::kSlidingWindow)
    shape.model.n_swa = static_cast<std::int32_t>(1 + up_to(8));
  shape.model.seed = random_();
  shape.gate.max_concurrent = static_cast<std::int32_t>(1 + up_to(4));
  if (one_in(2)) shape.gate.max_waiting = static_cast<std::int32_t>(up_to(8));
  constexpr double ageing[] = {0, 0.5, 10};
  shape.gate.ageing_seconds = ageing[up_to(3)];
  shape.pool.layout = one_in(3) ? "isolated" : "batched";
  shape.pool.kv = one_in(3) ? "split" : "shared";
  shape.pool.n_ctx = static_cast<std::int32_t>(8 + up_to(56));
  shape.pool.n_batch = static_cast<std::int32_t>(1 + up_to(16));
  shape.pool.n_cached = static_cast<std::int32_t>(up_to(4));
  shape.faults = one_in(2);
  return shape;
}

void World::step(bool open) {
  ++steps_;
  const std::uint64_t action = up_to(100);
  if (action < 40) {
    loop_step();
  } else if (action < 48) {
    if (open || one_in(8)) enqueue();
  } else if (action < 56) {
    if (open || one_in(8)) start_queued();
  } else if (action < 58) {
    if (open || one_in(8)) try_acquire();
  } else if (action < 60) {
    if (open || one_in(8)) acquire_now();
  } else if (action < 67) {
    take();
  } else if (action < 71) {
    give_up_place();
  } else if (action < 78) {
    start_in_permit();
  } else if (action < 83) {
    release();
  } else if (action < 86) {
    cancel();
  } else if (action < 91) {
    stream();
  } else if (action < 94) {
    pass_time();
  } else if (action < 95) {
    if (open) resize();
  } else if (action < 97) {
    if (shape_.faults) add_fault();
  } else {
    fetch_mail();
  }
  settle_all();
  check_gate();
  check_places();
}

void World::loop_step() {
  ++loop_steps_;
  rig_.loop->step();
  check_lanes();
}

void World::enqueue() {
  const std::uint64_t id = next_id_++;
  GateModel::Waiter waiter{id, static_cast<std::int32_t>(up_to(5)) - 2, now(), up_to(4)};
  const auto answer = gate_.may_enqueue(waiter.owner);
  std::optional<pronk::Ticket> ticket;
  auto got = GateModel::Answer::kOk;
  try {
    ticket = rig_.scheduler->enqueue({waiter.priority, waiter.owner});
  } catch (const pronk::SchedulerClosedError&) {
    got = GateModel::Answer::kClosed;
  } catch (const pronk::DeadlockError&) {
    got = GateModel::Answer::kDeadlock;
  } catch (const pronk::QueueFullError&) {
    got = GateModel::Answer::kFull;
  }
  equal("enqueue", static_cast<int>(got), static_cast<int>(answer));
  if (!ticket) return;
  gate_.enqueue(waiter, now());
  Place place{std::move(*ticket), waiter.owner, std::nullopt, one_in(2), false};
  if (one_in(2)) place.deadline = now() + static_cast<std::int64_t>(up_to(4'000'000'000));
  if (place.listens) place.ticket.listen({mailbox_, id});
  places_.emplace(id, std::move(place));
}

void World::try_acquire() {
  if (gate_.refusing) {
    try {
      rig_.scheduler->try_acquire();
    } catch (const pronk::SchedulerClosedError&) {
      return;
    }
    fail("try_acquire: got an answer of a closed scheduler");
  }
  const std::uint64_t owner = up_to(4);
  const bool may = gate_.may_try();
  auto permit = rig_.scheduler->try_acquire({0, owner});
  equal("try_acquire", permit.has_value(), may);
  if (!permit) return;
  gate_.hold(owner);
  permits_.emplace(next_id_++, Held{std::move(*permit), owner, 0});
}

// A blocking call that has no time to wait.
void World::acquire_now() {
  const std::uint64_t id = next_id_++;
  const auto answer = gate_.may_enqueue(0);
  try {
    auto permit = rig_.scheduler->acquire(0ns);
    check(answer == GateModel::Answer::kOk, "acquire: got a permit, expected a refusal");
    gate_.enqueue({id, 0, now(), 0}, now());
    check(gate_.granted.erase(id) == 1, "acquire: got a permit, expected to wait");
    permits_.emplace(id, Held{std::move(permit), 0, 0});
  } catch (const pronk::AcquireTimeout&) {
    check(answer == GateModel::Answer::kOk, "acquire: got a timeout, expected a refusal");
    gate_.enqueue({id, 0, now(), 0}, now());
    check(gate_.is_waiting(id), "acquire: got a timeout, expected a permit");
    gate_.cancel(id, true, now());
  } catch (const pronk::SchedulerClosedError&) {
    check(answer == GateModel::Answer::kClosed, "acquire: got closed");
  } catch (const pronk::QueueFullError&) {
    check(answer == GateModel::Answer::kFull, "acquire: got a full queue");
  }
}

void World::take() {
  if (places_.empty()) return;
  const auto it = any(places_);
  const auto granted = gate_.granted.find(it->first);
  if (granted == gate_.granted.end()) {
    try {
      it->second.ticket.take();
    } catch (const pronk::Error&) {
      return;
    }
    fail("take: got a permit of a ticket that was not granted");
  }
  pronk::InferencePermit permit = it->second.ticket.take();
  gate_.granted.erase(granted);
  permits_.emplace(it->first, Held{std::move(permit), it->second.owner, 0});
  places_.erase(it);  // a ticket that was taken drops nothing
}

void World::give_up_place() {
  if (!places_.empty()) drop_place(any(places_), false);
}

void World::drop_place(std::map<std::uint64_t, Place>::iterator it, bool timeout) {
  const std::uint64_t id = it->first;
  if (timeout || one_in(2)) {
    it->second.ticket.cancel(timeout);
    if (one_in(2)) it->second.ticket.cancel();
  }
  places_.erase(it);
  gate_.cancel(id, timeout, now());
}

Tokens World::draw_prompt() {
  // Mostly one of a few stems, cut and extended at random.
  Tokens prompt;
  const std::uint64_t stem = up_to(3);
  const std::uint64_t length =
      up_to(one_in(2) ? 44 : 14);  // long enough, at times, to be waited for
  for (std::uint64_t i = 0; i < length; ++i)
    prompt.push_back(static_cast<pronk::Token>((i * (stem + 1) + stem) % kLetters));
  for (std::uint64_t i = up_to(4) + (prompt.empty() ? 1 : 0); i > 0; --i) {
    prompt.push_back(static_cast<pronk::Token>(up_to(kLetters)));
  }
  const auto most = static_cast<std::size_t>(*shape_.pool.n_ctx - 1);
  if (prompt.size() > most) prompt.resize(most);
  return prompt;
}

pronk::GenerationParams World::draw_params() {
  auto params = by_hand::greedy(static_cast<std::int32_t>(up_to(16)));
  if (one_in(10)) params.max_tokens.reset();
  params.cache = !one_in(8);
  if (one_in(8)) params.cache_scope = "other";
  return params;
}

std::uint64_t World::add_request(Tokens prompt, const pronk::GenerationParams& params) {
  const auto room = *shape_.pool.n_ctx - static_cast<std::int32_t>(prompt.size());
  const std::uint64_t id = next_id_++;
  Request& request = requests_[id];
  request.whole = rig_.model.expected(prompt, std::min(room, params.max_tokens.value_or(room)));
  return id;
}

void World::start_queued() {
  const auto answer = gate_.may_enqueue(0);
  const auto priority = static_cast<std::int32_t>(up_to(5)) - 2;
  Tokens prompt = draw_prompt();
  const auto params = draw_params();
  const std::uint64_t id = add_request(prompt, params);
  Request& request = requests_[id];
  auto got = GateModel::Answer::kOk;
  try {
    request.generation = rig_.scheduler->generate(std::move(prompt), params, priority);
  } catch (const pronk::SchedulerClosedError&) {
    got = GateModel::Answer::kClosed;
  } catch (const pronk::QueueFullError&) {
    got = GateModel::Answer::kFull;
  }
  equal("generate", static_cast<int>(got), static_cast<int>(answer));
  if (got != GateModel::Answer::kOk) {
    requests_.erase(id);
    return;
  }
  gate_.enqueue({id, priority, now(), 0}, now());
  request.listens = one_in(2);
  if (request.listens) request.generation->listen({mailbox_, id});
}

void World::start_in_permit() {
  if (permits_.empty()) return;
  const auto it = any(permits_);
  Held& held = it->second;
  Tokens prompt = draw_prompt();
  const auto params = draw_params();
  if (held.running != 0) {
    try {
      held.permit.generate(std::move(prompt), params);
    } catch (const pronk::PermitBusyError&) {
      return;
    }
    fail("permit: got a second generation while one runs");
  }
  const std::uint64_t id = add_request(prompt, params);
  Request& request = requests_[id];
  request.generation = held.permit.generate(std::move(prompt), params);
  request.permit = it->first;
  request.owner = held.owner;
  request.listens = one_in(2);
  if (request.listens) request.generation->listen({mailbox_, id});
  held.running = id;
}

void World::release() {
  if (!permits_.empty()) drop_permit(any(permits_));
}

void World::drop_permit(std::map<std::uint64_t, Held>::iterator it) {
  Held& held = it->second;
  if (held.running != 0) {
    Request& request = requests_.at(held.running);
    request.dropped_permit = true;
    gate_.disown(request.owner);
    request.owner = 0;
    mark_cancelled(request);
  }
  if (one_in(2)) held.permit.release();
  const bool idle = held.running == 0;
  const std::uint64_t owner = held.owner;
  permits_.erase(it);
  if (idle) gate_.release(owner, now());
}

void World::mark_cancelled(Request& request) {
  if (request.cancelled) return;
  request.cancelled = true;
  request.cancelled_at = loop_steps_;
}

void World::cancel() {
  if (requests_.empty()) return;
  const auto it = any(requests_);
  const bool queued = gate_.is_waiting(it->first);
  mark_cancelled(it->second);
  if (one_in(2)) {
    it->second.generation->cancel();
    if (queued)
      check(it->second.generation->done(), "cancel: got a queued generation that goes on");
  } else {
    it->second.generation.reset();
  }
  if (!queued) return;
  gate_.cancel(it->first, false, now());
  it->second.settled = true;
}

void World::stream() {
  if (requests_.empty()) return;
  Request& request = any(requests_)->second;
  if (!request.generation) return;
  std::string piece;
  try {
    if (request.generation->next_for(piece, 0ns) == pronk::StreamStatus::kPiece)
      request.taken += piece;
  } catch (const pronk::GenerationCancelled&) {
    check(request.cancelled || closed_, "stream: got cancelled, nobody asked for it");
  } catch (const pronk::BackendError&) {
    check(shape_.faults, "stream: got a backend error without a fault");
  } catch (const pronk::SchedulerClosedError&) {
    check(closed_, "stream: got closed while open");
  }
}

void World::pass_time() {
  rig_.clock.advance(std::chrono::nanoseconds(up_to(2'000'000'000)));
  // Blocked threads whose time is over.
  for (auto it = places_.begin(); it != places_.end();) {
    const auto next = std::next(it);
    Place& place = it->second;
    if (place.deadline && *place.deadline <= now()) {
      const bool granted = gate_.granted.contains(it->first);
      const TicketStatus status = place.ticket.wait_for(0ns);
      if (!closed_)
        check((status == TicketStatus::kGranted) == granted,
              "wait_for: got another status than expected");
      if (granted) {
        place.deadline.reset();  // came in time
      } else {
        drop_place(it, true);
      }
    }
    it = next;
  }
}

void World::resize() {
  const auto n =
      static_cast<std::int32_t>(1 + up_to(static_cast<std::uint64_t>(shape_.gate.max_concurrent)));
  rig_.scheduler->resize(n);
  gate_.max = n;
  gate_.grant(now());
}

void World::add_fault() {
  if (one_in(4)) {
    rig_.model.clear_faults();
    return;
  }
  constexpr FaultKind decode[] = {FaultKind::kNoSlot,       FaultKind::kAborted,
                                  FaultKind::kInvalidBatch, FaultKind::kNoMemory,
                                  FaultKind::kFailed,       FaultKind::kRuntimeError,
                                  FaultKind::kBadAlloc,     FaultKind::kForeignException,
                                  FaultKind::kNanLogits,    FaultKind::kImpossibleLogits};
  constexpr FaultKind any_point[] = {FaultKind::kRuntimeError, FaultKind::kBadAlloc,
                                     FaultKind::kForeignException};
  Fault fault;
  fault.times = static_cast<std::int64_t>(1 + up_to(3));
  switch (up_to(8)) {
    case 0:
      fault.point = FaultPoint::kSeqRemove;
      fault.kind = one_in(2) ? FaultKind::kReturnFalse : any_point[up_to(3)];
      break;
    case 1:
      fault.point = FaultPoint::kSeqCopy;
      fault.kind = any_point[up_to(3)];
      break;
    case 2:
      fault.point = FaultPoint::kMakeBackend;
      fault.kind = one_in(2) ? FaultKind::kNoMemory : any_point[up_to(3)];
      break;
    default:
      fault.kind = decode[up_to(std::size(decode))];
      if (fault.kind != FaultKind::kNoSlot && fault.kind != FaultKind::kInvalidBatch) {
        fault.applied = static_cast<std::int32_t>(up_to(6));
      }
  }
  rig_.model.add_fault(fault);
}

// What an event loop does: it looks at the descriptor, and only if that is readable into the
// mailbox.
void World::fetch_mail() {
  std::set<std::uint64_t> keys;
  if (by_hand::readable(*mailbox_)) {
    for (const std::uint64_t key : mailbox_->drain()) keys.insert(key);
    check(!keys.empty(), "mailbox: got a bell without a key");
  }
  for (auto& [id, place] : places_) {
    if (!place.listens || place.told) continue;
    const bool decided = place.ticket.status() != TicketStatus::kWaiting;
    equal("mailbox: key of a ticket", keys.contains(id), decided);
    place.told = decided;
  }
  for (auto& [id, request] : requests_) {
    if (!request.listens || request.told || !request.generation) continue;
    if (request.generation->done()) {
      check(keys.contains(id), "mailbox: got no key of a generation that has ended");
      request.told = true;
    }
  }
}

Report run(std::uint64_t seed, std::int64_t steps) { return World(seed).run(steps); }

}  // namespace simulation
