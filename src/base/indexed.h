// A vector whose positions have one type of index: an entry for a chunk cannot be looked up by the number of a frame.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace vedette {

template <class I, class T>
class Indexed {
 public:
  Indexed() = default;
  explicit Indexed(std::size_t size, const T& value = T()) : entries_(size, value) {}

  T& operator[](I index) noexcept { return entries_[index.value]; }
  const T& operator[](I index) const noexcept { return entries_[index.value]; }
  void reserve(std::size_t size) { entries_.reserve(size); }
  void resize(std::size_t size) { entries_.resize(size); }
  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(entries_.size()); }
  auto begin() noexcept { return entries_.begin(); }
  auto end() noexcept { return entries_.end(); }
  auto begin() const noexcept { return entries_.begin(); }
  auto end() const noexcept { return entries_.end(); }

 private:
  std::vector<T> entries_;
};

}  // namespace vedette
