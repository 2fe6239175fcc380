// A set of small numbers, in order: bits, and above each 64 of them one bit that says whether any is set. Every call
// O(log64 size), without allocating; a planner's walk inserts and erases as often as ops use tensors.
#pragma once
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

namespace vedette::planning {

class Marks {
 public:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  explicit Marks(std::size_t size) {
    do {
      size = (size + 63) / 64;
      levels_.emplace_back(size == 0 ? 1 : size);
    } while (size > 1);
  }

  void insert(std::uint32_t number) {
    for (std::vector<std::uint64_t>& level : levels_) {
      const std::uint64_t before = level[number / 64];
      level[number / 64] = before | std::uint64_t{1} << number % 64;
      if (before != 0) return;
      number /= 64;
    }
  }

  void erase(std::uint32_t number) {
    for (std::vector<std::uint64_t>& level : levels_) {
      level[number / 64] &= ~(std::uint64_t{1} << number % 64);
      if (level[number / 64] != 0) return;
      number /= 64;
    }
  }

  std::uint32_t first() const {  // none: it is empty
    if (levels_.back()[0] == 0) return none;
    std::uint32_t at = 0;
    for (std::size_t l = levels_.size(); l-- > 0;)
      at = at * 64 + static_cast<std::uint32_t>(std::countr_zero(levels_[l][at]));
    return at;
  }

  std::uint32_t last() const {  // none: it is empty
    if (levels_.back()[0] == 0) return none;
    return last_below(levels_.size(), 0);
  }

  // The largest one smaller than `number`; none: there is no such.
  std::uint32_t before(std::uint32_t number) const {
    for (std::size_t l = 0; l < levels_.size(); ++l, number /= 64) {
      const std::uint64_t smaller = levels_[l][number / 64] & ((std::uint64_t{1} << number % 64) - 1);
      if (smaller != 0)
        return last_below(l, number / 64 * 64 + 63 - static_cast<std::uint32_t>(std::countl_zero(smaller)));
    }
    return none;
  }

 private:
  // Down from level l, where `at` is the number's place, along the last bits.
  std::uint32_t last_below(std::size_t l, std::uint32_t at) const {
    while (l-- > 0) at = at * 64 + 63 - static_cast<std::uint32_t>(std::countl_zero(levels_[l][at]));
    return at;
  }

  std::vector<std::vector<std::uint64_t>> levels_;  // the numbers themselves first
};

}  // namespace vedette::planning
