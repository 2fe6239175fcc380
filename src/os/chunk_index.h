// Positions of chunks and frames, which cannot be exchanged for each other, and half-open ranges of chunks.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "vedette/units.h"

namespace vedette {

using ChunkIndex = Index<struct ChunkTag>;
using FrameIndex = Index<struct FrameTag>;

// Chunks [first, end) of an arena. Iteration yields each ChunkIndex in ascending order.
class ChunkRange {
 public:
  class Iterator {
   public:
    using value_type = ChunkIndex;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::forward_iterator_tag;
    using pointer = const ChunkIndex*;
    using reference = ChunkIndex;

    constexpr Iterator() = default;
    constexpr explicit Iterator(ChunkIndex at) noexcept : at_(at) {}
    constexpr ChunkIndex operator*() const noexcept { return at_; }
    constexpr Iterator& operator++() noexcept {
      ++at_.value;
      return *this;
    }
    constexpr Iterator operator++(int) noexcept { return Iterator({at_.value++}); }
    constexpr bool operator==(const Iterator&) const = default;

   private:
    ChunkIndex at_;
  };

  constexpr ChunkRange() = default;
  constexpr ChunkRange(ChunkIndex first, ChunkIndex end) noexcept : first_(first), end_(end) {}  // first <= end
  static constexpr ChunkRange of(ChunkIndex first, std::uint32_t count) noexcept {
    return {first, {first.value + count}};
  }
  static constexpr ChunkRange one(ChunkIndex chunk) noexcept { return of(chunk, 1); }

  constexpr Iterator begin() const noexcept { return Iterator(first_); }
  constexpr Iterator end() const noexcept { return Iterator(end_); }
  constexpr ChunkIndex first() const noexcept { return first_; }
  constexpr ChunkIndex limit() const noexcept { return end_; }  // one past the last
  constexpr std::uint32_t size() const noexcept { return end_.value - first_.value; }
  constexpr bool empty() const noexcept { return first_ == end_; }
  constexpr bool contains(ChunkIndex chunk) const noexcept { return first_ <= chunk && chunk < end_; }
  constexpr auto operator<=>(const ChunkRange&) const = default;

 private:
  ChunkIndex first_, end_;
};

}  // namespace vedette
