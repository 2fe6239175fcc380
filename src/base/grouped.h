// Lists of a step's parts, end to end in one array: 4 bytes a list beside its entries, where a vector of vectors takes
// 24 and an allocation for each.
#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace vedette {

template <class T>
class Grouped {
 public:
  Grouped() : ends_{0} {}
  // `items`: each with the list that it belongs to, below `lists`. Items of one list keep their order.
  Grouped(std::size_t lists, const std::vector<std::pair<std::uint32_t, T>>& items)
      : items_(items.size()), ends_(lists + 1) {
    for (const auto& item : items) ++ends_[item.first + std::size_t{1}];
    for (std::size_t l = 1; l <= lists; ++l) ends_[l] += ends_[l - 1];
    std::vector<std::uint32_t> next(ends_.begin(), ends_.end());
    for (const auto& item : items) items_[next[item.first]++] = item.second;
  }
  explicit Grouped(const std::vector<std::vector<T>>& lists) : ends_{0} {
    std::size_t count = 0;
    for (const auto& list : lists) count += list.size();
    items_.reserve(count);
    ends_.reserve(lists.size() + 1);
    for (const auto& list : lists) {
      items_.insert(items_.end(), list.begin(), list.end());
      ends_.push_back(static_cast<std::uint32_t>(items_.size()));
    }
  }

  std::size_t size() const noexcept { return ends_.size() - 1; }
  std::span<const T> operator[](std::size_t list) const {
    return std::span(items_).subspan(ends_[list], ends_[list + 1] - ends_[list]);
  }
  std::span<T> of(std::size_t list) { return std::span(items_).subspan(ends_[list], ends_[list + 1] - ends_[list]); }

 private:
  std::vector<T> items_;
  std::vector<std::uint32_t> ends_;  // [0] is 0
};

}  // namespace vedette
