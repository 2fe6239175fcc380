// From the places of one plan to those of another, on the device: see place_executor.h.
#include <algorithm>

#include "base/assert.h"
#include "gpu/place_executor.h"

namespace vedette {

// Behind the block's last uses and those of its new place; later uses run behind the copy.
Result<void> PlaceExecutor::shift(BlockIndex index, std::uint64_t to) {
  Block& block = blocks_[index.value];
  const std::uint64_t from = *arena_.offset(index), whole = rounded(block.bytes);
  if (auto covered = cover_uses(block); !covered) return covered;
  const Fences fences = take_fences(to, whole);
  const auto queue = [&]() -> Result<cuda::StreamPoint> {
    if (auto waits = let_wait(in_number_, fences); !waits) return waits.error();
    if (auto waits = let_wait(in_number_, block.uses); !waits) return waits.error();
    if (auto waits = points_.let_wait(in_number_, block.ready); !waits) return waits.error();
    if (auto queued = device_->copy(in_.handle(), range_.address() + to, range_.address() + from, block.bytes); !queued)
      return queued.error();
    return points_.mark(in_number_);
  };
  const auto copied = queue();
  if (!copied) {
    static_cast<void>(in_.synchronize());  // no copy into the place runs on
    remember(to, whole, fences);
    return copied.error();
  }
  arena_.remove(index);
  const bool placed = arena_.place_at(index, block.bytes, to);
  VEDETTE_ASSERT(placed);
  if (block.movable) arena_.allow_moves(index);
  remember(from, whole, {*copied});
  block.uses.clear();
  block.ready = *copied;
  counters_.shifted += block.bytes;
  owner_.moved(index, range_.address() + to);
  return {};
}

// The block's own place counts as taken: a copy reads it.
bool PlaceExecutor::has_room_at(BlockIndex index, std::uint64_t place) const {
  const auto there = arena_.occupants(place, blocks_[index.value].bytes);
  return there && there->empty();
}

// In any order that works. Where each one's place has another one in it, the smallest moves aside, or leaves.
Result<void> PlaceExecutor::shift_all(std::vector<Target>& misplaced) {
  std::stable_sort(misplaced.begin(), misplaced.end(), [&](const Target& a, const Target& b) {
    return blocks_[a.block.value].bytes < blocks_[b.block.value].bytes;
  });
  std::vector<BlockIndex> aside;  // once each
  while (!misplaced.empty()) {
    bool any = false;
    for (Target& each : misplaced) {
      if (!has_room_at(each.block, each.place)) continue;
      if (auto shifted = shift(each.block, each.place); !shifted) return shifted;
      any = true;
    }
    std::erase_if(misplaced, [&](const Target& each) { return arena_.offset(each.block) == each.place; });
    if (any || misplaced.empty()) continue;
    const Target first = misplaced.front();
    misplaced.erase(misplaced.begin());
    const auto hole = arena_.hole(blocks_[first.block.value].bytes);
    const bool was_aside = std::find(aside.begin(), aside.end(), first.block) != aside.end();
    if (was_aside || !hole) {
      if (auto left = evict(first.block, MoveCause::planned); !left) return left;
      continue;
    }
    if (auto shifted = shift(first.block, *hole); !shifted) return shifted;
    aside.push_back(first.block);
    misplaced.push_back(first);
  }
  return {};
}

Result<void> PlaceExecutor::rearrange(std::span<const Target> targets) {
  std::vector<bool> wanted(blocks_.size());
  std::vector<Target> misplaced;
  for (const Target& each : targets) {
    wanted[each.block.value] = true;
    const auto offset = arena_.offset(each.block);
    if (offset && *offset != each.place && may_leave(each.block)) misplaced.push_back(each);
  }
  std::vector<BlockIndex> leaving;
  for (std::uint32_t i = 0; i < blocks_.size(); ++i)
    if (!wanted[i] && may_leave({i})) leaving.push_back({i});
  if (auto left = evict_all(leaving, MoveCause::planned); !left) return left;
  if (auto shifted = shift_all(misplaced); !shifted) return shifted;
  std::vector<Coming> coming;
  for (const Target& each : targets) coming.push_back({.block = each.block, .place = each.place});
  auto comes = bring_all(coming);
  return comes || comes.error().cause == Cause::out_of_memory ? Result<void>() : comes;
}

}  // namespace vedette
