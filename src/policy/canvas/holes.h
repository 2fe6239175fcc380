// Room with holes in it: the lowest or the highest hole of a size, and the largest of all, without walking through
// them. A treap of holes by address, each node with the largest size below it; the priorities are a sequence of their
// own, so it is the same in every run. Pure. Every call O(log holes).
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace vedette::planning {

class Holes {
 public:
  struct Hole {
    std::uint64_t begin = 0, end = 0;
    std::uint64_t size() const { return end - begin; }
  };

  // Becomes free; joined with holes that it touches. It must not overlap any.
  void give(Hole hole) {
    if (hole.size() == 0) return;
    auto [below, above] = split(root_, hole.begin);
    if (const std::uint32_t last = edge(below, &Node::right); last != none && nodes_[last].hole.end == hole.begin) {
      hole.begin = nodes_[last].hole.begin;
      below = split(below, hole.begin).first;
      free_.push_back(last);
    }
    if (const std::uint32_t first = edge(above, &Node::left); first != none && nodes_[first].hole.begin == hole.end) {
      above = split(above, hole.end + 1).second;
      hole.end = nodes_[first].hole.end;
      free_.push_back(first);
    }
    root_ = join(join(below, made(hole)), above);
  }

  // Takes the hole away that begins there, whole.
  void take(const Hole& hole) {
    const auto [below, rest] = split(root_, hole.begin);
    const auto [found, above] = split(rest, hole.begin + 1);
    free_.push_back(found);
    root_ = join(below, above);
  }

  std::optional<Hole> lowest(std::uint64_t bytes) const { return find(bytes, &Node::left, &Node::right); }
  std::optional<Hole> highest(std::uint64_t bytes) const { return find(bytes, &Node::right, &Node::left); }
  std::uint64_t largest() const { return largest(root_); }

 private:
  static constexpr std::uint32_t none = ~0U;
  struct Node {
    Hole hole;
    std::uint64_t largest = 0;
    std::uint32_t priority = 0, left = none, right = none;
  };
  using Side = std::uint32_t Node::*;

  std::uint64_t largest(std::uint32_t node) const { return node == none ? 0 : nodes_[node].largest; }

  std::optional<Hole> find(std::uint64_t bytes, Side near, Side far) const {
    std::uint32_t node = root_;
    if (largest(node) < bytes || node == none) return std::nullopt;
    for (;;) {
      if (const std::uint32_t nearer = nodes_[node].*near; nearer != none && nodes_[nearer].largest >= bytes) {
        node = nearer;
      } else if (nodes_[node].hole.size() >= bytes) {
        return nodes_[node].hole;
      } else {
        node = nodes_[node].*far;
      }
    }
  }

  std::uint32_t edge(std::uint32_t node, Side side) const {
    while (node != none && nodes_[node].*side != none) node = nodes_[node].*side;
    return node;
  }

  std::uint32_t made(const Hole& hole) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    const Node node{.hole = hole,
                    .largest = hole.size(),
                    .priority = static_cast<std::uint32_t>(state_ >> 32),
                    .left = none,
                    .right = none};
    if (free_.empty()) {
      nodes_.push_back(node);
      return static_cast<std::uint32_t>(nodes_.size() - 1);
    }
    const std::uint32_t place = free_.back();
    free_.pop_back();
    nodes_[place] = node;
    return place;
  }

  void refresh(std::uint32_t node) {
    Node& at = nodes_[node];
    at.largest = std::max({at.hole.size(), largest(at.left), largest(at.right)});
  }

  // Those that begin below `address`, and the others.
  std::pair<std::uint32_t, std::uint32_t> split(std::uint32_t node, std::uint64_t address) {
    if (node == none) return {none, none};
    const bool goes_left = nodes_[node].hole.begin < address;
    const auto [left, right] = split(goes_left ? nodes_[node].right : nodes_[node].left, address);
    (goes_left ? nodes_[node].right : nodes_[node].left) = goes_left ? left : right;
    refresh(node);
    return goes_left ? std::pair{node, right} : std::pair{left, node};
  }

  // Of two of which all of the one lie below the other.
  std::uint32_t join(std::uint32_t below, std::uint32_t above) {
    if (below == none) return above;
    if (above == none) return below;
    const bool root_below = nodes_[below].priority >= nodes_[above].priority;
    if (root_below) {
      const std::uint32_t right = join(nodes_[below].right, above);
      nodes_[below].right = right;
    } else {
      const std::uint32_t left = join(below, nodes_[above].left);
      nodes_[above].left = left;
    }
    const std::uint32_t root = root_below ? below : above;
    refresh(root);
    return root;
  }

  std::vector<Node> nodes_;
  std::vector<std::uint32_t> free_;  // places in nodes_
  std::uint32_t root_ = none;
  std::uint64_t state_ = 7919;
};

}  // namespace vedette::planning
