// The tickets that wait, in the order in which they are to be granted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>

namespace pronk::inline v0 {

class TicketState;

/// Nearly all arrive in their final order and leave from the front: those cost a constant time and
/// no allocation of their own. Arrivals that overtake others, by their priority, are kept apart and
/// cost the logarithm of their number. To leave from the middle takes the logarithm too, amortised.
/// Not thread-safe.
class WaitQueue {
 public:
  /// Lower goes first. No two are equal.
  using Key = std::pair<std::int64_t, std::uint64_t>;

  bool empty() const noexcept { return size() == 0; }
  std::size_t size() const noexcept { return in_order_.size() - n_gone_ + overtaking_.size(); }

  void push(Key key, std::shared_ptr<TicketState> ticket);
  /// Takes out the first. There has to be one.
  std::shared_ptr<TicketState> pop();
  /// Takes out any. It has to be there.
  void erase(Key key);

 private:
  struct Place {
    Key key;
    std::shared_ptr<TicketState> ticket;  // null: gone
  };

  void drop_gone();

  std::deque<Place> in_order_;  // the first one, if any, is not gone
  std::size_t n_gone_ = 0;
  std::map<Key, std::shared_ptr<TicketState>> overtaking_;
};

}  // namespace pronk::inline v0
