#include "wait_queue.h"

#include <algorithm>

namespace pronk::inline v0 {

void WaitQueue::push(Key key, std::shared_ptr<TicketState> ticket) {
  if (in_order_.empty() || in_order_.back().key < key) {
    in_order_.push_back({key, std::move(ticket)});
  } else {
    overtaking_.emplace(key, std::move(ticket));
  }
}

std::shared_ptr<TicketState> WaitQueue::pop() {
  std::shared_ptr<TicketState> first;
  const auto overtaking = overtaking_.begin();
  if (overtaking != overtaking_.end() &&
      (in_order_.empty() || overtaking->first < in_order_.front().key)) {
    first = std::move(overtaking->second);
    overtaking_.erase(overtaking);
  } else {
    first = std::move(in_order_.front().ticket);
    in_order_.pop_front();
    drop_gone();
  }
  return first;
}

void WaitQueue::erase(Key key) {
  if (overtaking_.erase(key) > 0) return;
  const auto place =
      std::lower_bound(in_order_.begin(), in_order_.end(), key,
                       [](const Place& each, const Key& wanted) { return each.key < wanted; });
  place->ticket.reset();
  ++n_gone_;
  // As many steps as there were calls since the last time.
  if (n_gone_ > in_order_.size() / 2) {
    std::erase_if(in_order_, [](const Place& each) { return each.ticket == nullptr; });
    n_gone_ = 0;
  }
  drop_gone();
}

void WaitQueue::drop_gone() {
  while (!in_order_.empty() && in_order_.front().ticket == nullptr) {
    in_order_.pop_front();
    --n_gone_;
  }
}

}  // namespace pronk::inline v0
