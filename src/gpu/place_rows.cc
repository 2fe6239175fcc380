// Blocks that are away and of which an op uses few bytes, rows of a table for instance: see place_rows.h.
#include "gpu/place_rows.h"

#include <algorithm>

#include "base/assert.h"

namespace vedette {

using cuda::StreamPoint;

bool PlaceExecutor::InSlots::begin(const Few& use) {
  Block& block = of.blocks_[use.block.value];
  const auto comes = [&](const Coming& each) { return each.block == use.block; };
  if (!of.options_.reaches_host) return false;
  if (of.arena_.in_place(use.block) || block.dropped || !block.slot || of.still_) return false;
  if (std::any_of(of.coming_.begin(), of.coming_.end(), comes)) return false;
  const HostSlot slot = *block.slot;
  if (!of.host_.need(slot, use.written)) return false;  // as an operand it tells the error
  for (const StreamPoint& there : {of.host_.filled_at(slot), of.host_.read_at(slot)}) {
    if (of.points_.let_wait(stream, there)) continue;
    if (block.in_slot == 0) of.host_.forget_wish(slot);
    return false;
  }
  ++block.in_slot;
  ++block.pins;
  block.changes_slot = block.changes_slot || use.written;
  of.counters_.in_slots += use.bytes;
  of.owner_.moved(use.block, of.address(use.block));
  return true;
}

// A slot keeps its latest point alone, so that the point stands behind the uses on other streams. Where no point can be
// marked the host waits for the op.
void PlaceExecutor::InSlots::end(BlockIndex index) {
  Block& block = of.blocks_[index.value];
  for (const StreamPoint& other : {of.host_.filled_at(*block.slot), of.host_.read_at(*block.slot)})
    if (const auto waits = of.points_.let_wait(stream, other); !waits) die(waits.error().message.c_str());
  const auto used = of.points_.mark(stream);
  if (!used) {
    const int refused = of.device_->calls().stream_synchronize(of.points_.handle_of(stream));
    if (refused != cuda::success)
      die(of.device_->driver().error(refused, "waiting for an op that uses host memory").message.c_str());
  }
  const StreamPoint point = used ? *used : StreamPoint();
  block.changes_slot ? of.host_.filled(*block.slot, point) : of.host_.is_read(*block.slot, point);
  join(block.uses, point);  // the next copy out writes there
  --block.pins;
  if (--block.in_slot > 0) return of.host_.will_fill(*block.slot);
  block.changes_slot = false;
  if (block.alive) of.owner_.moved(index, 0);
  if (block.pins == 0 && !block.alive) of.bury(index);
}

// A block that is used so does not have to come back. A plan says itself what leaves.
void PlaceExecutor::InSlots::leaves_first(BlockIndex index) {
  of.arena_.use_before_all(index);
  of.uses_.expect({.index = index, .tick = never, .dead_at = never});
}

Result<bool> PlaceExecutor::InSlots::begin_op(std::span<const BlockIndex> blocks, std::span<const Few> few,
                                              Results results, Bytes result) {
  std::vector<BlockIndex> operands(blocks.begin(), blocks.end()), in_slots;
  bool lost = false;  // a block stays in its slot as long as an op uses it there
  for (const Few& use : few) {
    const bool begins = begin(use);
    lost = lost || (!begins && of.blocks_[use.block.value].in_slot > 0);
    (begins ? in_slots : operands).push_back(use.block);
  }
  auto begun = lost ? Error{.message = "the GPU refuses to wait for a copy; see the kernel's log (dmesg)"}
                    : of.pin_for(operands, stream, results, result);
  if (!begun) {
    for (const BlockIndex index : in_slots) end(index);
    return begun;
  }
  for (std::size_t i = blocks.size(); i < operands.size() && results == Results::anywhere; ++i)
    leaves_first(operands[i]);
  return begun;
}

Result<bool> PlaceExecutor::InSlots::begin_beside(std::span<const BlockIndex> blocks, Results results, Bytes result) {
  std::vector<BlockIndex> others;
  std::vector<Few> few;
  for (const BlockIndex index : blocks) {
    const Block& block = of.blocks_[index.value];
    if (block.in_slot == 0) {
      others.push_back(index);
    } else {
      few.push_back({.block = index, .bytes = block.bytes, .written = true});
    }
  }
  return begin_op(others, few, results, result);
}

}  // namespace vedette
