// Places of steps without a plan: first fit in one range of bytes, eviction of the least recently used, or by a rank.
//
// A block is in place or not. A block that is pinned (an operand of an open op) or that is not movable yet (its storage
// was never seen) is never a victim and never moves. Always: blocks in place overlap nowhere and lie inside the range.
//
// Pure: no lock, thread, clock or address; time is the number of calls of use() and place(). One thread at a time.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory_resource>
#include <optional>
#include <vector>

#include "base/indexed.h"
#include "vedette/units.h"

namespace vedette::moves {

using BlockIndex = Index<struct BlockTag>;

class RangeAllocator {
 public:
  explicit RangeAllocator(Bytes bytes, Bytes alignment = {512});

  // The lowest hole that is wide enough; nullopt where there is none.
  std::optional<std::uint64_t> hole(Bytes) const;
  // There. The block is new, unpinned, not movable.
  std::optional<std::uint64_t> place(BlockIndex, Bytes);
  bool place_at(BlockIndex, Bytes, std::uint64_t offset);  // where a plan says; false: another block lies there
  // The blocks in [offset, offset + bytes), lowest first; nullopt: one of them is pinned or not movable, or
  // they are not all of the range.
  std::optional<std::vector<BlockIndex>> occupants(std::uint64_t offset, Bytes) const;
  void remove(BlockIndex);  // evicted or freed
  bool in_place(BlockIndex index) const { return placed(index) != nullptr; }
  bool may_leave(BlockIndex) const;  // in place, movable, unpinned
  std::optional<std::uint64_t> offset(BlockIndex) const;

  void use(BlockIndex);             // most recently used now
  void use_before_all(BlockIndex);  // least recently used now
  void pin(BlockIndex);
  void unpin(BlockIndex);
  void allow_moves(BlockIndex);
  void forbid_moves(BlockIndex);

  // Neighbours whose removal makes a hole for `bytes`, lowest offset first. Of all such windows the one whose most
  // recently used block was used least recently; empty when a hole is there already, nullopt when no removal helps.
  std::optional<std::vector<BlockIndex>> victims(Bytes) const;
  // The same by another rank than the time of the latest use, and one block at least, though there may be a hole: one
  // of the lowest rank leaves first, one without a rank stays.
  using Rank = std::function<std::optional<std::uint64_t>(BlockIndex)>;
  std::optional<std::vector<BlockIndex>> victims(Bytes, const Rank&) const;

  Bytes bytes() const noexcept { return {bytes_}; }
  void resize(Bytes);                            // no block lies beyond
  std::uint64_t end_of(BlockIndex block) const;  // in place
  Bytes in_use() const noexcept { return {in_use_}; }
  // The longest stretch that no block cuts which is not movable.
  struct Stretch {
    std::uint64_t first = 0;
    Bytes bytes;
  };
  Stretch longest_movable() const;

 private:
  struct Block {
    std::uint64_t offset = 0, bytes = 0, used = 0;  // bytes: 0, it is not in place
    std::uint32_t pins = 0;
    bool movable = false;
  };
  std::uint64_t rounded(Bytes) const noexcept;
  void insert(BlockIndex, std::uint64_t offset, std::uint64_t bytes);
  // nullptr: it is not in place
  const Block* placed(BlockIndex index) const {
    return index.value < blocks_.size() && blocks_[index].bytes > 0 ? &blocks_[index] : nullptr;
  }
  const Block& at(BlockIndex) const;
  Block& at(BlockIndex);
  // Calls of `visit` with the begin and end of each hole, until one returns true.
  template <class Visit>
  void each_hole(const Visit& visit) const;

  std::uint64_t bytes_;
  const std::uint64_t alignment_;
  std::pmr::unsynchronized_pool_resource pool_;
  Indexed<BlockIndex, Block> blocks_;  // each op asks for each of its operands, several times
  std::pmr::map<std::uint64_t, BlockIndex> by_offset_{&pool_};
  static constexpr std::uint64_t middle_of_time = std::uint64_t{1} << 62;
  std::uint64_t in_use_ = 0, clock_ = middle_of_time, oldest_ = middle_of_time;
};

}  // namespace vedette::moves
