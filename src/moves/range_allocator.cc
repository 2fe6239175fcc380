// Holes, windows of victims: see range_allocator.h.
#include "moves/range_allocator.h"

#include <algorithm>
#include <deque>

#include "base/assert.h"

namespace vedette::moves {

RangeAllocator::RangeAllocator(Bytes bytes, Bytes alignment)
    : bytes_(bytes.value / alignment.value * alignment.value), alignment_(alignment.value) {}

void RangeAllocator::resize(Bytes bytes) {
  bytes_ = bytes.value / alignment_ * alignment_;
  VEDETTE_ASSERT(by_offset_.empty() || end_of(by_offset_.rbegin()->second) <= bytes_);
}

std::uint64_t RangeAllocator::end_of(BlockIndex block) const {
  const Block& found = blocks_[block];
  return found.offset + found.bytes;
}

std::uint64_t RangeAllocator::rounded(Bytes bytes) const noexcept {
  return (std::max<std::uint64_t>(bytes.value, 1) + alignment_ - 1) / alignment_ * alignment_;
}

template <class Visit>
void RangeAllocator::each_hole(const Visit& visit) const {
  std::uint64_t end = 0;
  for (const auto& [offset, block] : by_offset_) {
    if (offset > end && visit(end, offset)) return;
    end = offset + at(block).bytes;
  }
  if (end < bytes_) visit(end, bytes_);
}

void RangeAllocator::insert(BlockIndex block, std::uint64_t offset, std::uint64_t bytes) {
  VEDETTE_ASSERT(!in_place(block));
  if (block.value >= blocks_.size()) blocks_.resize(block.value + 256);
  blocks_[block] = {.offset = offset, .bytes = bytes, .used = ++clock_};
  by_offset_[offset] = block;
  in_use_ += bytes;
}

std::optional<std::uint64_t> RangeAllocator::hole(Bytes wanted) const {
  const std::uint64_t bytes = rounded(wanted);
  std::optional<std::uint64_t> found;
  each_hole([&](std::uint64_t begin, std::uint64_t end) {
    if (end - begin < bytes) return false;
    found = begin;
    return true;
  });
  return found;
}

std::optional<std::uint64_t> RangeAllocator::place(BlockIndex block, Bytes wanted) {
  const auto found = hole(wanted);
  if (found) insert(block, *found, rounded(wanted));
  return found;
}

bool RangeAllocator::place_at(BlockIndex block, Bytes wanted, std::uint64_t offset) {
  const std::uint64_t bytes = rounded(wanted);
  if (offset % alignment_ != 0 || bytes > bytes_ || offset > bytes_ - bytes) return false;
  const auto next = by_offset_.lower_bound(offset);
  if (next != by_offset_.end() && next->first < offset + bytes) return false;
  if (next != by_offset_.begin()) {
    const auto before = std::prev(next);
    if (before->first + at(before->second).bytes > offset) return false;
  }
  insert(block, offset, bytes);
  return true;
}

std::optional<std::vector<BlockIndex>> RangeAllocator::occupants(std::uint64_t offset, Bytes wanted) const {
  const std::uint64_t end = offset + rounded(wanted);
  if (end > bytes_) return std::nullopt;  // as a plan for a larger range has it
  auto each = by_offset_.lower_bound(offset);
  if (each != by_offset_.begin()) {
    const auto before = std::prev(each);
    if (before->first + at(before->second).bytes > offset) each = before;
  }
  std::vector<BlockIndex> found;
  for (; each != by_offset_.end() && each->first < end; ++each) {
    if (!may_leave(each->second)) return std::nullopt;
    found.push_back(each->second);
  }
  return found;
}

bool RangeAllocator::may_leave(BlockIndex block) const {
  const Block* const found = placed(block);
  return found != nullptr && found->movable && found->pins == 0;
}

const RangeAllocator::Block& RangeAllocator::at(BlockIndex block) const {
  VEDETTE_ASSERT(in_place(block));
  return blocks_[block];
}
RangeAllocator::Block& RangeAllocator::at(BlockIndex block) {
  VEDETTE_ASSERT(in_place(block));
  return blocks_[block];
}

void RangeAllocator::remove(BlockIndex block) {
  const Block& gone = at(block);
  in_use_ -= gone.bytes;
  by_offset_.erase(gone.offset);
  blocks_[block] = {};
}

std::optional<std::uint64_t> RangeAllocator::offset(BlockIndex block) const {
  const Block* const found = placed(block);
  return found == nullptr ? std::nullopt : std::optional(found->offset);
}

void RangeAllocator::use(BlockIndex block) { at(block).used = ++clock_; }
void RangeAllocator::use_before_all(BlockIndex block) { at(block).used = --oldest_; }
void RangeAllocator::pin(BlockIndex block) { ++at(block).pins; }
void RangeAllocator::unpin(BlockIndex block) {
  VEDETTE_ASSERT(at(block).pins > 0);
  --at(block).pins;
}
void RangeAllocator::allow_moves(BlockIndex block) { at(block).movable = true; }
void RangeAllocator::forbid_moves(BlockIndex block) { at(block).movable = false; }

std::optional<std::vector<BlockIndex>> RangeAllocator::victims(Bytes wanted) const {
  if (hole(wanted)) return std::vector<BlockIndex>();
  return victims(wanted, [this](BlockIndex block) { return at(block).used; });
}

// A window is a run of neighbours that may leave, with the holes around them. Two ends go up through the offsets; the
// highest rank in the window is kept by a queue of falling ranks, so each block enters and leaves once.
std::optional<std::vector<BlockIndex>> RangeAllocator::victims(Bytes wanted, const Rank& rank) const {
  const std::uint64_t bytes = rounded(wanted);
  struct Ranked {
    BlockIndex block;
    std::uint64_t rank = 0;
  };
  std::deque<BlockIndex> window;
  std::deque<Ranked> highest;
  std::optional<std::vector<BlockIndex>> best;
  std::uint64_t best_rank = 0, begin = 0;
  for (auto each = by_offset_.begin(); each != by_offset_.end(); ++each) {
    const Block& block = at(each->second);
    const std::uint64_t next = std::next(each) == by_offset_.end() ? bytes_ : std::next(each)->first;
    const bool may_leave = block.pins == 0 && block.movable;
    const std::optional<std::uint64_t> of_block = may_leave ? rank(each->second) : std::nullopt;
    if (!of_block) {
      window.clear();
      highest.clear();
      begin = block.offset + block.bytes;
      continue;
    }
    window.push_back(each->second);
    while (!highest.empty() && highest.back().rank < *of_block) highest.pop_back();
    highest.push_back({each->second, *of_block});
    while (next - begin >= bytes && !window.empty()) {
      if (!best || highest.front().rank < best_rank) {
        best.emplace(window.begin(), window.end());
        best_rank = highest.front().rank;
      }
      const Block& first = at(window.front());
      begin = first.offset + first.bytes;
      if (highest.front().block == window.front()) highest.pop_front();
      window.pop_front();
    }
  }
  return best;
}

RangeAllocator::Stretch RangeAllocator::longest_movable() const {
  Stretch longest;
  std::uint64_t begin = 0;
  const auto ends = [&](std::uint64_t end) {
    if (end - begin > longest.bytes.value) longest = {.first = begin, .bytes = {end - begin}};
  };
  for (const auto& [offset, index] : by_offset_) {
    const Block& block = at(index);
    if (block.movable) continue;
    ends(offset);
    begin = offset + block.bytes;
  }
  ends(bytes_);
  return longest;
}

}  // namespace vedette::moves
