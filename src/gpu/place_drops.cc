// Blocks that are dropped, and recomputed into the place of another block: see place_executor.h.
#include <utility>

#include "base/assert.h"
#include "gpu/place_executor.h"

namespace vedette {

using cuda::StreamHandle;

// The place is written again behind the block's last uses, as after its death.
bool PlaceExecutor::drop(BlockIndex index) {
  if (!may_leave(index)) return false;
  Block& block = blocks_[index.value];
  const std::uint64_t offset = *arena_.offset(index);
  if (!cover_uses(block)) return false;
  Fences before = std::exchange(block.uses, {});
  join(before, block.ready);
  block.ready = {};
  block.unchanged = false;
  block.dropped = true;
  block.dropped_from = offset;
  if (block.slot) host_.give_back(*std::exchange(block.slot, std::nullopt));
  arena_.remove(index);
  remember(offset, rounded(block.bytes), before);
  owner_.moved(index, 0);
  return true;
}

bool PlaceExecutor::is_dropped(BlockIndex index) const { return blocks_[index.value].dropped; }

PlaceExecutor::Place PlaceExecutor::dropped_from(BlockIndex index) const {
  return blocks_[index.value].dropped ? blocks_[index.value].dropped_from : Place();
}

void PlaceExecutor::adopt(BlockIndex from, BlockIndex to) {
  Block &made = blocks_[from.value], &wanted = blocks_[to.value];
  const auto offset = arena_.offset(from);
  VEDETTE_ASSERT(offset && made.pins == 0 && wanted.dropped && made.bytes == wanted.bytes);
  arena_.remove(from);
  const bool placed = arena_.place_at(to, wanted.bytes, *offset);
  VEDETTE_ASSERT(placed);
  wanted.uses = std::exchange(made.uses, {});
  wanted.unended = std::exchange(made.unended, {});
  wanted.recorded = std::exchange(made.recorded, {});
  wanted.ready = std::exchange(made.ready, {});
  wanted.dropped = false;
  wanted.dropped_from.reset();
  if (wanted.movable) arena_.allow_moves(to);
  arena_.use(to);
  owner_.moved(to, range_.address() + *offset);
}

Result<void> PlaceExecutor::begin_again(std::span<const BlockIndex> blocks, StreamHandle stream) {
  ends_ = Ends::marked;
  const std::uint32_t number = points_.number_of(stream);
  for (const BlockIndex index : blocks) {
    Block& block = blocks_[index.value];
    if (auto covered = cover_uses(block); !covered) return covered;
    if (auto waits = let_wait(number, block.uses); !waits) return waits;
  }
  if (auto pinned = pin_for(blocks, number, Results::placed); !pinned) return pinned.error();
  return {};
}

void PlaceExecutor::end_again(std::span<const BlockIndex> blocks, StreamHandle stream) {
  const std::uint32_t number = points_.number_of(stream);
  // The stream is behind whatever made them ready before.
  if (const auto point = points_.mark(number)) {
    for (const BlockIndex index : blocks) blocks_[index.value].ready = *point;
  } else {
    for (const BlockIndex index : blocks) wait_for_uses(blocks_[index.value]);
  }
  unpin_for(blocks, number);
}

}  // namespace vedette
