// Bytes over ops: add to a range, ask for the largest of a range, find the last that is too large. A segment tree whose
// sums stay at the nodes that they were added to; walked from the leaves upwards, because planners ask it millions of
// times. Every call O(log ops).
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace vedette::planning {

class Room {
 public:
  explicit Room(const std::vector<std::int64_t>& values) {
    while (size_ < values.size()) size_ *= 2;
    nodes_.assign(2 * size_, {least, 0});
    for (std::size_t i = 0; i < values.size(); ++i) nodes_[size_ + i].most = values[i];
    for (std::size_t node = size_ - 1; node > 0; --node)
      nodes_[node].most = std::max(nodes_[2 * node].most, nodes_[2 * node + 1].most);
    count_ = values.size();
  }

  // Adds to [begin, end); ends beyond the last op are cut off.
  void add(std::size_t begin, std::size_t end, std::int64_t bytes) {
    end = std::min(end, count_);
    if (begin >= end) return;
    std::size_t left = begin + size_, right = end - 1 + size_;  // inclusive: their ancestors are what changes
    const auto apply = [&](std::size_t node) { nodes_[node].most += bytes, nodes_[node].added += bytes; };
    apply(left);
    if (left != right) apply(right);
    for (; left >> 1 != right >> 1; climb(left), climb(right)) {
      if ((left & 1) == 0) apply(left + 1);
      if ((right & 1) != 0) apply(right - 1);
    }
    while (left > 1) climb(left);
  }

  // The largest of [begin, end), 0 when that is empty.
  std::int64_t most(std::size_t begin, std::size_t end) const {
    end = std::min(end, count_);
    if (begin >= end) return 0;
    std::size_t left = begin + size_, right = end - 1 + size_;
    std::int64_t of_left = nodes_[left].most, of_right = nodes_[right].most;
    while (left >> 1 != right >> 1) {
      if ((left & 1) == 0) of_left = std::max(of_left, nodes_[left + 1].most);
      if ((right & 1) != 0) of_right = std::max(of_right, nodes_[right - 1].most);
      of_left += nodes_[left >>= 1].added;
      of_right += nodes_[right >>= 1].added;
    }
    std::int64_t largest = std::max(of_left, of_right);
    while ((left >>= 1) > 0) largest += nodes_[left].added;
    return largest;
  }

  std::int64_t at(std::size_t op) const { return most(op, op + 1); }
  std::int64_t largest() const { return nodes_[1].most; }  // of all; the least number where there are none

  // The last of [begin, end) that is larger than `limit`.
  std::optional<std::size_t> last_above(std::size_t begin, std::size_t end, std::int64_t limit) const {
    end = std::min(end, count_);
    return begin < end ? last_above(1, 0, size_, begin, end, limit) : std::nullopt;
  }

 private:
  static constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min() / 2;
  struct Node {
    std::int64_t most, added;  // of the leaves below, `added` included; to all of them
  };

  // To the parent, which takes the larger of its two.
  void climb(std::size_t& node) {
    node >>= 1;
    nodes_[node].most = std::max(nodes_[2 * node].most, nodes_[2 * node + 1].most) + nodes_[node].added;
  }

  std::optional<std::size_t> last_above(std::size_t node, std::size_t low, std::size_t high, std::size_t begin,
                                        std::size_t end, std::int64_t limit) const {
    if (begin >= high || end <= low || nodes_[node].most <= limit) return std::nullopt;
    if (high - low == 1) return low;
    const std::size_t middle = (low + high) / 2;
    limit -= nodes_[node].added;
    const auto right = last_above(2 * node + 1, middle, high, begin, end, limit);
    return right ? right : last_above(2 * node, low, middle, begin, end, limit);
  }

  std::size_t size_ = 1, count_ = 0;
  std::vector<Node> nodes_;
};

}  // namespace vedette::planning
