#include "pack/first_fit.h"

#include <algorithm>
#include <bit>

namespace vedette::pack {

AddressTree::AddressTree(std::uint32_t sections)
    : leaves_(std::bit_ceil(std::max(sections, 1u))), full_(2 * leaves_), any_(2 * leaves_) {}

void AddressTree::gather(const Set& set) {
  if (set.count > 0) cursors_.push_back({pool_.data() + set.at, pool_.data() + set.at + set.count});
}

void AddressTree::gather(Sections piece) {
  std::uint32_t left = piece.begin + leaves_, right = piece.end + leaves_;
  // walks up from both ends: every ancestor of the nodes that make up the piece
  std::uint32_t low = left, high = right - 1;
  bool left_known = false, right_known = false;  // whether a node of the piece lies below low, or below high
  for (; left < right; left /= 2, right /= 2) {
    if (left_known) gather(full_[low]);
    if (right_known && high != low) gather(full_[high]);
    if (left % 2 == 1) gather(any_[left++]), left_known = true;
    if (right % 2 == 1) gather(any_[--right]), right_known = true;
    low /= 2, high /= 2;
  }
  for (; low > 0; low /= 2, high /= 2) {
    gather(full_[low]);
    if (high != low) gather(full_[high]);
  }
}

std::uint64_t AddressTree::first_fit(std::span<const Sections> life, const Shape& shape) {
  cursors_.clear();
  for (const Sections& piece : life) gather(piece);
  steps_ += 2 * cursors_.size() + 8;
  std::uint64_t at = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t i = 0; i < cursors_.size();) {
      Cursor& cursor = cursors_[i];
      while (cursor.next != cursor.end) {
        if (cursor.next->end > at) {
          if (cursor.next->begin >= at + shape.bytes) break;
          at = shape.settle(cursor.next->end);
          moved = true;
        }
        ++cursor.next;
        ++steps_;
      }
      if (cursor.next == cursor.end) {
        cursor = cursors_.back();
        cursors_.pop_back();
      } else {
        ++i;
      }
    }
  }
  return at;
}

// Makes one range of `remove` ranges from `position` on, or room for a new one.
AddressTree::Range* AddressTree::open_up(Set& set, std::uint32_t position, std::uint32_t remove) {
  if (remove > 0) {
    Range* const begin = pool_.data() + set.at;
    std::copy(begin + position + remove, begin + set.count, begin + position + 1);
    set.count -= remove - 1;
    return begin + position;
  }
  if (set.count == set.room) {
    const std::uint32_t room = set.room == 0 ? 2 : set.room * 2;
    const auto at = static_cast<std::uint32_t>(pool_.size());
    pool_.resize(pool_.size() + room);
    std::copy_n(pool_.data() + set.at, set.count, pool_.data() + at);
    set.at = at, set.room = room;
  }
  Range* const begin = pool_.data() + set.at;
  std::copy_backward(begin + position, begin + set.count, begin + set.count + 1);
  ++set.count;
  return begin + position;
}

bool AddressTree::add(Set& set, Range range) {
  steps_ += 4 + set.count / 16;
  const Range* const begin = pool_.data() + set.at;
  const Range* const end = begin + set.count;
  const Range* const first =
      std::lower_bound(begin, end, range.begin, [](const Range& r, std::uint64_t at) { return r.end < at; });
  if (first != end && first->begin <= range.begin && range.end <= first->end) return false;
  const Range* last = first;  // [first, last) touch the new range
  while (last != end && last->begin <= range.end) ++last;
  if (last != first) range = {std::min(range.begin, first->begin), std::max(range.end, last[-1].end)};
  *open_up(set, static_cast<std::uint32_t>(first - begin), static_cast<std::uint32_t>(last - first)) = range;
  return true;
}

void AddressTree::insert(std::span<const Sections> life, std::uint64_t begin, std::uint64_t end) {
  if (begin == end) return;
  for (const Sections& piece : life) {
    std::uint32_t left = piece.begin + leaves_, right = piece.end + leaves_;
    const auto cover = [&](std::uint32_t node) {
      add(full_[node], {begin, end});
      // A range that an ancestor has, its own ancestors have.
      for (; node > 0 && add(any_[node], {begin, end}); node /= 2) {
      }
    };
    for (; left < right; left /= 2, right /= 2) {
      if (left % 2 == 1) cover(left++);
      if (right % 2 == 1) cover(--right);
    }
  }
}

}  // namespace vedette::pack
