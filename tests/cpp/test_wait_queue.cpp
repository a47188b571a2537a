// The order of those who wait, against a sorted map.
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "check.h"
#include "gate.h"
#include "wait_queue.h"

namespace {

using pronk::TicketState;
using pronk::WaitQueue;

std::shared_ptr<TicketState> ticket() {
  return std::make_shared<TicketState>(nullptr, pronk::AcquireOptions{});
}

}  // namespace

TEST(wait_queue_is_first_in_first_out) {
  WaitQueue queue;
  CHECK(queue.empty());
  std::vector<std::shared_ptr<TicketState>> tickets;
  for (int i = 0; i < 1000; ++i) {
    tickets.push_back(ticket());
    queue.push({i / 10, static_cast<std::uint64_t>(i)}, tickets.back());
  }
  CHECK_EQ(queue.size(), 1000u);
  for (const auto& each : tickets) CHECK(queue.pop() == each);
  CHECK(queue.empty());
}

TEST(wait_queue_as_a_sorted_map) {
  std::mt19937_64 random(check::seed());
  const auto up_to = [&](std::uint64_t n) { return random() % n; };
  for (int round = 0; round < 50; ++round) {
    WaitQueue queue;
    std::map<WaitQueue::Key, std::shared_ptr<TicketState>> model;
    // How often somebody overtakes, leaves from the middle, is served.
    const auto overtaking = up_to(4), leaving = up_to(4), serving = up_to(6);
    std::int64_t time = 0;
    std::uint64_t number = 0;
    for (int step = 0; step < 400; ++step) {
      const auto action = up_to(12);
      if (action < serving) {
        if (model.empty()) continue;
        CHECK(queue.pop() == model.begin()->second);
        model.erase(model.begin());
      } else if (action < serving + leaving) {
        if (model.empty()) continue;
        const auto it = std::next(model.begin(), static_cast<std::ptrdiff_t>(up_to(model.size())));
        queue.erase(it->first);
        model.erase(it);
      } else {
        time += static_cast<std::int64_t>(up_to(3));
        const std::int64_t ahead = up_to(4) < overtaking ? static_cast<std::int64_t>(up_to(30)) : 0;
        const WaitQueue::Key key{time - ahead, number++};
        const auto made = ticket();
        queue.push(key, made);
        model.emplace(key, made);
      }
      CHECK_EQ(queue.size(), model.size());
      CHECK_EQ(queue.empty(), model.empty());
    }
    while (!model.empty()) {
      CHECK(queue.pop() == model.begin()->second);
      model.erase(model.begin());
    }
    CHECK(queue.empty());
  }
}

TEST(wait_queue_keeps_nothing_of_those_who_left) {
  WaitQueue queue;
  std::vector<std::weak_ptr<TicketState>> left;
  for (int i = 0; i < 100; ++i) {
    const auto made = ticket();
    left.push_back(made);
    queue.push({i % 7 == 0 ? -i : i, static_cast<std::uint64_t>(i)}, made);
  }
  for (int i = 99; i >= 0; --i) {
    queue.erase({i % 7 == 0 ? -i : i, static_cast<std::uint64_t>(i)});
    CHECK(left[static_cast<std::size_t>(i)].expired());
  }
  CHECK(queue.empty());
}
