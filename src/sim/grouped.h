// Numbers in groups, all in one row: those of each op, say. A list of lists takes an allocation for each. Pure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace vedette::sim {

class Grouped {
 public:
  Grouped() = default;
  // `group_of(i)` of each entry i of `entries`, below `groups`; `value_of(i)` is its number. Entries of one group keep
  // their order.
  template <class GroupOf, class ValueOf>
  Grouped(std::size_t groups, std::size_t entries, const GroupOf& group_of, const ValueOf& value_of)
      : first_(groups + 1), values_(entries) {
    for (std::size_t i = 0; i < entries; ++i) ++first_[group_of(i)];
    std::uint32_t sum = 0;
    for (std::uint32_t& each : first_) each = sum += each;
    for (std::size_t i = entries; i-- > 0;) values_[--first_[group_of(i)]] = static_cast<std::uint32_t>(value_of(i));
  }
  // `first`: where the values of each group begin; one more entry at the end.
  Grouped(std::vector<std::uint32_t> first, std::vector<std::uint32_t> values)
      : first_(std::move(first)), values_(std::move(values)) {}

  std::span<const std::uint32_t> operator[](std::size_t group) const {
    return {values_.data() + first_[group], first_[group + 1] - first_[group]};
  }

 private:
  std::vector<std::uint32_t> first_, values_;
};

}  // namespace vedette::sim
