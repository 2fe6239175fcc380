// The tensors that an op of a log reads or writes, in the order in which it announced them. Up to four need no
// allocation.
#pragma once
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

namespace vedette {

class OperandList {
 public:
  OperandList() noexcept = default;
  OperandList(std::initializer_list<std::uint32_t> tensors) { assign({tensors.begin(), tensors.size()}); }
  OperandList(const std::vector<std::uint32_t>& tensors) { assign(tensors); }
  OperandList(const OperandList& other) { assign(other); }
  OperandList(OperandList&& other) noexcept { swap(other); }
  OperandList& operator=(OperandList other) noexcept {
    swap(other);
    return *this;
  }
  ~OperandList() {
    if (capacity_ > few) delete[] many_;
  }

  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  const std::uint32_t* data() const noexcept { return capacity_ > few ? many_ : few_; }
  const std::uint32_t* begin() const noexcept { return data(); }
  const std::uint32_t* end() const noexcept { return data() + size_; }
  std::uint32_t back() const noexcept { return data()[size_ - 1]; }
  bool contains(std::uint32_t tensor) const noexcept { return std::find(begin(), end(), tensor) != end(); }
  bool operator==(const OperandList& other) const noexcept {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

  void push_back(std::uint32_t tensor) {
    if (size_ == capacity_) grow(capacity_ * 2);
    place()[size_++] = tensor;
  }
  template <class Which>
  void erase_if(Which which) {
    size_ = static_cast<std::uint32_t>(std::remove_if(place(), place() + size_, which) - place());
  }

 private:
  static constexpr std::uint32_t few = 4;

  std::uint32_t* place() noexcept { return capacity_ > few ? many_ : few_; }
  void assign(std::span<const std::uint32_t> tensors) {
    if (tensors.size() > few) grow(static_cast<std::uint32_t>(tensors.size()));
    std::copy(tensors.begin(), tensors.end(), place());
    size_ = static_cast<std::uint32_t>(tensors.size());
  }
  void grow(std::uint32_t capacity) {
    auto* const larger = new std::uint32_t[capacity];
    std::copy(begin(), end(), larger);
    if (capacity_ > few) delete[] many_;
    many_ = larger;
    capacity_ = capacity;
  }
  void swap(OperandList& other) noexcept {
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    std::swap(few_, other.few_);  // all of the union
  }

  std::uint32_t size_ = 0, capacity_ = few;
  union {
    std::uint32_t few_[few] = {};
    std::uint32_t* many_;
  };
};

}  // namespace vedette
