// Bytes over ops: add to a range, ask for the largest of a range, find the last that is too large. A segment tree with lazy sums; every call O(log ops).
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
    most_.assign(2 * size_, std::numeric_limits<std::int64_t>::min() / 2);
    added_.assign(2 * size_, 0);
    std::copy(values.begin(), values.end(), most_.begin() + static_cast<std::ptrdiff_t>(size_));
    for (std::size_t node = size_ - 1; node > 0; --node) most_[node] = std::max(most_[2 * node], most_[2 * node + 1]);
    count_ = values.size();
  }

  // Adds to [begin, end); ends beyond the last op are cut off.
  void add(std::size_t begin, std::size_t end, std::int64_t bytes) { add(1, 0, size_, begin, std::min(end, count_), bytes); }
  // The largest of [begin, end), 0 when that is empty.
  std::int64_t most(std::size_t begin, std::size_t end) const {
    end = std::min(end, count_);
    return begin < end ? most(1, 0, size_, begin, end) : 0;
  }
  // The last of [begin, end) that is larger than `limit`.
  std::optional<std::size_t> last_above(std::size_t begin, std::size_t end, std::int64_t limit) const {
    end = std::min(end, count_);
    return begin < end ? last_above(1, 0, size_, begin, end, limit) : std::nullopt;
  }

 private:
  void add(std::size_t node, std::size_t low, std::size_t high, std::size_t begin, std::size_t end, std::int64_t bytes) {
    if (begin >= high || end <= low) return;
    if (begin <= low && high <= end) {
      most_[node] += bytes;
      added_[node] += bytes;
      return;
    }
    const std::size_t middle = (low + high) / 2;
    add(2 * node, low, middle, begin, end, bytes);
    add(2 * node + 1, middle, high, begin, end, bytes);
    most_[node] = std::max(most_[2 * node], most_[2 * node + 1]) + added_[node];
  }

  std::int64_t most(std::size_t node, std::size_t low, std::size_t high, std::size_t begin, std::size_t end) const {
    if (begin >= high || end <= low) return std::numeric_limits<std::int64_t>::min() / 2;
    if (begin <= low && high <= end) return most_[node];
    const std::size_t middle = (low + high) / 2;
    return std::max(most(2 * node, low, middle, begin, end), most(2 * node + 1, middle, high, begin, end)) + added_[node];
  }

  std::optional<std::size_t> last_above(std::size_t node, std::size_t low, std::size_t high, std::size_t begin, std::size_t end,
                                        std::int64_t limit) const {
    if (begin >= high || end <= low || most_[node] <= limit) return std::nullopt;
    if (high - low == 1) return low;
    const std::size_t middle = (low + high) / 2;
    limit -= added_[node];
    const auto right = last_above(2 * node + 1, middle, high, begin, end, limit);
    return right ? right : last_above(2 * node, low, middle, begin, end, limit);
  }

  std::size_t size_ = 1, count_ = 0;
  std::vector<std::int64_t> most_, added_;
};

}  // namespace vedette::planning
