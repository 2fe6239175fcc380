// A short list of plain values: a few lie in place, more on the heap. For lists that are nearly always short, in code
// that allocates nothing while they are. Thread rule: as of a vector.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>
#include <vector>

namespace vedette {

template <class Value, std::size_t few>
class InlineList {
  static_assert(std::is_trivially_copyable_v<Value>);

 public:
  InlineList() = default;
  InlineList(std::initializer_list<Value> values) {
    for (const Value& value : values) push_back(value);
  }

  bool empty() const noexcept { return size() == 0; }
  std::size_t size() const noexcept { return many_.empty() ? count_ : many_.size(); }
  Value* begin() noexcept { return many_.empty() ? few_.data() : many_.data(); }
  Value* end() noexcept { return begin() + size(); }
  const Value* begin() const noexcept { return many_.empty() ? few_.data() : many_.data(); }
  const Value* end() const noexcept { return begin() + size(); }
  const Value& back() const noexcept { return *(end() - 1); }

  void push_back(Value value) {
    if (many_.empty() && count_ == few) many_.assign(few_.begin(), few_.end());
    if (many_.empty()) {
      few_[count_++] = value;
    } else {
      many_.push_back(value);
    }
  }
  void pop_back() noexcept {
    if (many_.empty()) {
      --count_;
    } else {
      many_.pop_back();
      if (many_.empty()) count_ = 0;
    }
  }
  bool contains(const Value& value) const { return std::find(begin(), end(), value) != end(); }
  void erase(const Value& value) {
    const auto kept = static_cast<std::size_t>(std::remove(begin(), end(), value) - begin());
    while (size() > kept) pop_back();  // the last one of many brings begin() back in place
  }
  void clear() noexcept {
    many_.clear();
    count_ = 0;
  }

 private:
  std::array<Value, few> few_{};
  std::size_t count_ = 0;  // in few_, while many_ is empty
  std::vector<Value> many_;
};

}  // namespace vedette
