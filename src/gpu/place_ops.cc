// Ops of the program begin and end: see place_executor.h.
#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "gpu/place_executor.h"
#include "gpu/place_rows.h"

namespace vedette {

using cuda::StreamHandle;

// First the blocks in place are pinned, so that no fetch evicts another operand of the op.
// What comes for an op without a plan may leave again without a copy, unless may_change() says otherwise.
Result<void> PlaceExecutor::pin(std::span<const BlockIndex> blocks, Results results) {
  std::vector<BlockIndex>& away = away_;
  away.clear();
  for (const BlockIndex index : blocks) {
    if (blocks_[index.value].dropped)
      return Error{.cause = Cause::infeasible, .message = "a tensor that was dropped is used before it was recomputed"};
    if (!arena_.in_place(index)) away.push_back(index);
  }
  for (const BlockIndex index : blocks) {
    if (arena_.in_place(index)) arena_.pin(index);
  }
  if (away.size() > 1) {
    fetch_small(away, results == Results::anywhere);
    // They are pinned before a larger one takes their place.
    for (std::size_t i = 0, came = 0; i < away.size(); ++i)
      if (arena_.in_place(away[i])) std::swap(away[i], away[came++]);
  }
  for (std::size_t pinned = 0; pinned < away.size(); ++pinned) {
    if (!arena_.in_place(away[pinned])) {
      const auto coming = take_coming(away[pinned]);
      const MoveCause cause = coming ? MoveCause::planned : MoveCause::urgent;
      const Coming now{.block = away[pinned], .unchanged = results == Results::anywhere};
      if (auto fetched = fetch(coming.value_or(now), cause); !fetched) {
        for (const BlockIndex index : blocks) {
          if (arena_.in_place(index) && std::find(away.begin(), away.end(), index) == away.end()) arena_.unpin(index);
        }
        for (std::size_t i = 0; i < pinned; ++i) arena_.unpin(away[i]);
        return fetched;
      }
    }
    arena_.pin(away[pinned]);
  }
  return {};
}

bool PlaceExecutor::leaves_one_piece(std::span<const BlockIndex> blocks, Bytes result) const {
  std::uint64_t taken = 0, largest = 0;
  for (const BlockIndex index : blocks) {
    const std::uint64_t bytes = rounded(blocks_[index.value].bytes);
    taken += bytes;
    largest = std::max(largest, bytes);
  }
  const std::uint64_t most = arena_.bytes().value;
  if (taken + largest > most) return true;  // there is none to be had
  // Of several results, or where the estimate is high, all that there is beside the operands.
  if (result.value > 0) largest = std::max(largest, std::min(rounded(result), most - taken));
  // Operands cut the range into at most one piece more than there are operands.
  return (most - taken) / (blocks.size() + 1) >= largest || arena_.victims({largest}).has_value();
}

// No work of the op is queued yet, so that its operands may move, too. They leave, and so do the blocks at the range's
// beginning, where they come back side by side, the largest first.
Result<void> PlaceExecutor::pin_side_by_side(std::span<const BlockIndex> blocks, Results results) {
  ++counters_.misplaced;  // a plan has them elsewhere
  std::vector<BlockIndex> by_size(blocks.begin(), blocks.end());
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](BlockIndex a, BlockIndex b) { return blocks_[a.value].bytes > blocks_[b.value].bytes; });
  std::uint64_t taken = 0;
  for (const BlockIndex index : by_size) taken += rounded(blocks_[index.value].bytes);
  const auto send_away = [&](const std::vector<BlockIndex>& leaving) -> Result<void> {
    std::vector<BlockIndex> those;
    for (const BlockIndex index : leaving)
      if (may_leave(index)) those.push_back(index);
    return evict_all(those, MoveCause::room);
  };
  if (auto left = send_away(by_size); !left) return left;
  if (const auto there = arena_.occupants(0, {std::min(taken, arena_.bytes().value)})) {
    if (auto left = send_away(*there); !left) return left;
    if (auto pinned = pin(by_size, results); pinned || pinned.error().cause != Cause::out_of_memory) return pinned;
  }
  // Something that may not leave lies there: all else does.
  std::vector<BlockIndex> all;
  for (std::uint32_t i = 0; i < blocks_.size(); ++i) all.push_back({i});
  if (auto left = send_away(all); !left) return left;
  return pin(by_size, results);
}

// Work that is queued next may use the block. There is no way on without: its address is the program's already.
void PlaceExecutor::let_use(std::uint32_t stream, const Block& block) {
  if (!points_.let_wait(stream, block.ready))
    die("waiting for a copy to a GPU failed; start the program again, and see the kernel's log (dmesg) for the GPU's "
        "own report");
}

Result<bool> PlaceExecutor::begin_op(std::span<const BlockIndex> blocks, StreamHandle stream, Results results,
                                     Ends ends, Bytes result, std::span<const Few> few) {
  ends_ = ends;
  const std::uint32_t number = points_.number_of(stream);
  if (few.empty()) return pin_for(blocks, number, results, result);
  return InSlots{*this, number}.begin_op(blocks, few, results, result);
}

Result<bool> PlaceExecutor::pin_for(std::span<const BlockIndex> blocks, std::uint32_t number, Results results,
                                    Bytes result) {
  const auto in_slot = [this](BlockIndex index) { return blocks_[index.value].in_slot > 0; };
  if (std::any_of(blocks.begin(), blocks.end(), in_slot))
    return InSlots{*this, number}.begin_beside(blocks, results, result);
  advance();
  auto pinned = pin(blocks, results);
  if (pinned && results == Results::anywhere && !still_ && !leaves_one_piece(blocks, result)) {
    for (const BlockIndex each : blocks) arena_.unpin(each);
    pinned = pin_side_by_side(blocks, results);
    // Nothing could leave for the results: those that have no room lie beside the budget.
    if (!pinned && pinned.error().cause == Cause::out_of_memory) pinned = pin(blocks, Results::placed);
  } else if (!pinned && !still_ && pinned.error().cause == Cause::out_of_memory) {
    pinned = pin_side_by_side(blocks, results);
  }
  if (!pinned) return pinned.error();
  bool waits = false;
  for (const BlockIndex index : blocks) {
    waits = waits || points_.has_to_wait(number, blocks_[index.value].ready);
    let_use(number, blocks_[index.value]);
  }
  for (const BlockIndex index : blocks) {
    Block& block = blocks_[index.value];
    ++block.pins;
    arena_.use(index);
    uses_.used(index);
    if (!block.unended.contains(number)) block.unended.push_back(number);
  }
  return waits;
}

void PlaceExecutor::end_op(std::span<const BlockIndex> blocks, StreamHandle stream) {
  if (!blocks.empty()) unpin_for(blocks, points_.number_of(stream));
}

void PlaceExecutor::unpin_for(std::span<const BlockIndex> blocks, std::uint32_t number) {
  const auto point = end_of_uses(number);  // refused: the next one covers this op, too
  for (const BlockIndex index : blocks) {
    Block& block = blocks_[index.value];
    if (block.in_slot > 0) {
      InSlots{*this, number}.end(index);
      continue;
    }
    --block.pins;
    arena_.unpin(index);
    if (point && !still_) {  // else others use it that are not announced
      join(block.uses, *point);
      block.unended.erase(number);
    } else if (!block.unended.contains(number)) {  // an op inside has covered its stream
      block.unended.push_back(number);
    }
    if (block.pins == 0 && !block.alive) bury(index);
  }
}

// --- ops that are not announced --------------------------------------------------------------------------------------

bool PlaceExecutor::all_in_place() const {
  if (!coming_.empty()) return false;
  for (std::uint32_t i = 0; i < blocks_.size(); ++i)
    if (blocks_[i].alive && !arena_.in_place({i})) return false;
  return true;
}

// Their places are written again behind all that is queued on their owners when they die, as libtorch's own memory is.
Result<void> PlaceExecutor::keep_still(StreamHandle stream) {
  const std::uint32_t number = points_.number_of(stream);
  for (Block& block : blocks_) {
    if (!block.alive) continue;
    block.unchanged = false;
    if (!block.unended.contains(number)) block.unended.push_back(number);
    for (const std::uint32_t owner : block.owners)
      if (!block.unended.contains(owner)) block.unended.push_back(owner);
  }
  ends_ = Ends::noted;
  still_ = true;
  if (auto passed = in_.synchronize(); !passed) return passed;
  return out_.synchronize();
}

}  // namespace vedette
