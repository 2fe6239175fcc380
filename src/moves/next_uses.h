// When blocks are used next, as an earlier step lets expect it, and so which of them leaves first for room: the one
// whose room is free for the most ops a transfer. A block that was not told of is expected as late again as its last
// use is ago, and so is a use that is overdue.
//
// Pure. Times are ticks of the program's clock: one an op, growing over steps. One thread at a time.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "moves/range_allocator.h"

namespace vedette::moves {

class NextUses {
 public:
  using Ticks = std::uint64_t;
  static constexpr Ticks never = ~Ticks{0};

  struct Use {
    BlockIndex block;
    Ticks tick = never;     // never: no use is expected
    Ticks dead_at = never;  // never: no death is
  };
  struct Calendar {
    Ticks now = 0;              // of the running op, or the latest one
    Ticks ends = never;         // the running step, as is expected
    Ticks next_begins = never;  // the next one
  };

  void born(BlockIndex block) { at(block) = {.last_use = calendar_.now, .born_at = calendar_.now}; }
  void used(BlockIndex block) { at(block).last_use = calendar_.now; }
  void begin_op(const Calendar& calendar) { calendar_ = calendar; }
  void expect(const Use& use);

  Ticks now() const noexcept { return calendar_.now; }
  bool is_told(BlockIndex block) const { return known(block).told; }
  // Nothing is known yet of a block that is as old as the running op, or the latest one.
  bool is_newborn(BlockIndex block) const { return known(block).born_at == calendar_.now; }
  Ticks of(BlockIndex block) const;     // the next use, from the present tick on
  Ticks until(BlockIndex block) const;  // the same, or the death that is expected before it
  // So many ops a transfer its room is free. `unchanged`: it leaves without one.
  std::uint64_t room(BlockIndex block, bool unchanged) const;

 private:
  struct Known {
    Ticks next_use = never, dead_at = never, last_use = 0, born_at = never;
    bool told = false;
  };
  Known& at(BlockIndex block) {
    if (block.value >= blocks_.size()) blocks_.resize(block.value + 1);
    return blocks_[block.value];
  }
  Known known(BlockIndex block) const { return block.value < blocks_.size() ? blocks_[block.value] : Known(); }
  Ticks from_now(Ticks tick) const noexcept {
    return tick < calendar_.now ? calendar_.now + (calendar_.now - tick) : tick;
  }

  std::vector<Known> blocks_;
  Calendar calendar_;
};

}  // namespace vedette::moves
