#include "text_stream.h"

#include <utility>

namespace pronk::inline v0 {

StopMatcher::StopMatcher(const std::vector<std::string>& stops) {
  std::size_t bytes = 0;
  for (const std::string& stop : stops) bytes += stop.size();
  nodes_.reserve(bytes + 1);
  nodes_.emplace_back();
  from_root_.fill(0);
  for (const std::string& stop : stops) insert(stop);
  link();
}

std::int32_t StopMatcher::child_of(std::int32_t node, unsigned char byte) const noexcept {
  std::int32_t child = nodes_[static_cast<std::size_t>(node)].child;
  while (child >= 0 && nodes_[static_cast<std::size_t>(child)].byte != byte) {
    child = nodes_[static_cast<std::size_t>(child)].sibling;
  }
  return child;
}

void StopMatcher::insert(std::string_view stop) {
  std::int32_t node = 0;
  for (const char c : stop) {
    const auto byte = static_cast<unsigned char>(c);
    std::int32_t child = child_of(node, byte);
    if (child < 0) {
      child = static_cast<std::int32_t>(nodes_.size());
      Node& parent = nodes_[static_cast<std::size_t>(node)];
      const Node made{.sibling = parent.child, .depth = parent.depth + 1, .byte = byte};
      parent.child = child;
      nodes_.push_back(made);
    }
    node = child;
  }
  nodes_[static_cast<std::size_t>(node)].match = static_cast<std::int32_t>(stop.size());
}

// Breadth first: a node's links only need those of shallower nodes.
void StopMatcher::link() {
  std::vector<std::int32_t> order{0};
  order.reserve(nodes_.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::int32_t parent = order[i];
    for (std::int32_t child = nodes_[static_cast<std::size_t>(parent)].child; child >= 0;
         child = nodes_[static_cast<std::size_t>(child)].sibling) {
      order.push_back(child);
      Node& node = nodes_[static_cast<std::size_t>(child)];
      if (parent == 0) {
        from_root_[node.byte] = child;
        continue;  // fails to the root
      }
      std::int32_t fail = nodes_[static_cast<std::size_t>(parent)].fail;
      std::int32_t next = child_of(fail, node.byte);
      while (next < 0 && fail != 0) {
        fail = nodes_[static_cast<std::size_t>(fail)].fail;
        next = child_of(fail, node.byte);
      }
      node.fail = next < 0 ? 0 : next;
      // The node's own stop, where it has one, is longer than any that ends in a suffix of it.
      if (node.match == 0) node.match = nodes_[static_cast<std::size_t>(node.fail)].match;
    }
  }
}

std::int32_t StopMatcher::advance(unsigned char byte) noexcept {
  while (state_ != 0) {
    const std::int32_t child = child_of(state_, byte);
    if (child >= 0) {
      state_ = child;
      return nodes_[static_cast<std::size_t>(child)].match;
    }
    state_ = nodes_[static_cast<std::size_t>(state_)].fail;
  }
  state_ = from_root_[byte];
  return nodes_[static_cast<std::size_t>(state_)].match;
}

TextStream::TextStream(const std::vector<std::string>& stops)
    : matcher_(stops), matching_(!stops.empty()) {}

bool TextStream::push(std::string_view bytes) {
  if (stopped_) return true;
  const std::size_t begin = text_.size();
  decoder_.push(bytes, text_);
  match_from(begin);
  return stopped_;
}

void TextStream::finish() {
  if (stopped_) return;
  const std::size_t begin = text_.size();
  decoder_.finish(text_);
  match_from(begin);
  held_ = 0;
}

void TextStream::match_from(std::size_t begin) {
  if (!matching_) return;
  for (std::size_t i = begin; i < text_.size(); ++i) {
    const std::int32_t match = matcher_.advance(static_cast<unsigned char>(text_[i]));
    if (match == 0) continue;
    // All of the stop is still here: until now it was a prefix of one, and held back.
    text_.resize(i + 1 - static_cast<std::size_t>(match));
    held_ = 0;
    stopped_ = true;
    return;
  }
  // Both ends of what is held back are ends of characters: stops and decoded text consist of whole
  // ones.
  held_ = static_cast<std::size_t>(matcher_.pending());
}

std::string TextStream::take() {
  if (held_ == 0) return std::exchange(text_, {});
  const std::size_t certain = text_.size() - held_;
  std::string out = text_.substr(0, certain);
  text_.erase(0, certain);
  return out;
}

}  // namespace pronk::inline v0
