// Blocks that leave or come back at the same op (place_executor.h). Copies of small ones go in few calls of the driver,
// as cuda/batched_copies.h says.
//
// A copy waits for what it would wait for alone, and no longer: one that has to wait for more begins another call. Work
// behind a copy waits for the copy's whole call. A call that is refused is made again as one copy after the other.
#include <algorithm>
#include <utility>

#include "gpu/place_executor.h"

namespace vedette {

using cuda::StreamPoint;

namespace {

// Lack of room is told where there is no other error.
void keep(Result<void>& all, const Result<void>& next) {
  const auto lacks_room = [](const Result<void>& each) { return each.error().cause == Cause::out_of_memory; };
  if (!next && (all || (lacks_room(all) && !lacks_room(next)))) all = next;
}

}  // namespace

bool PlaceExecutor::is_small(BlockIndex index) const {
  return !together_.refused && device_->driver().batched_copies() && blocks_[index.value].bytes <= cuda::small_copy;
}

// The copies of `queued` go before a next one of so many bytes, which runs behind `before`.
template <class Moving>
bool PlaceExecutor::goes_first(const std::vector<Moving>& queued, Bytes next, std::uint32_t stream,
                               const Fences& before) const {
  std::uint64_t all = next.value;
  for (const Moving& each : queued) all += blocks_[each.block().value].bytes.value;
  return queued.size() == cuda::most_copies_in_a_call || all > cuda::most_in_a_call.value ||
         std::any_of(before.begin(), before.end(),
                     [&](const StreamPoint& each) { return points_.has_to_wait(stream, each); });
}

// Behind them a point of the stream.
Result<StreamPoint> PlaceExecutor::copy_together(std::uint32_t stream) {
  owner_.begins(together_.transfers.front());
  if (auto queued = device_->copy_together(points_.handle_of(stream), together_.copies); !queued) return queued.error();
  auto copied = points_.mark(stream);
  if (!copied) return copied;
  ++counters_.batches;
  counters_.batched += together_.copies.size();
  for (const Transfer& each : together_.transfers) owner_.is_queued(each);
  return copied;
}

// All that is `queued` goes in one call of the stream, and `ended` hears of each. One alone, and those of a call that
// is refused, are copied by `alone`.
template <class Moving, class Ended, class Alone>
Result<void> PlaceExecutor::copy_queued(std::vector<Moving>& queued, std::vector<Moving>& moving, cuda::Stream& stream,
                                        std::uint32_t number, Ended ended, Alone alone) {
  moving.clear();
  moving.swap(queued);
  together_.transfers.clear();
  together_.copies.clear();
  for (const Moving& each : moving) {
    blocks_[each.block().value].is_copied = false;
    together_.transfers.push_back(transfer_of(each));
    together_.copies.push_back(copy_of(each));
  }
  if (moving.size() > 1) {
    if (const auto copied = copy_together(number)) {
      for (const Moving& each : moving) ended(each, *copied);
      return {};
    }
    static_cast<void>(stream.synchronize());  // none of the copies runs on
    together_.refused = true;
  }
  Result<void> all;
  for (const Moving& each : moving) keep(all, alone(each));
  return all;
}

// --- out -------------------------------------------------------------------------------------------------------------

// One point of a stream for all of them, which then wait for the same. Those that are refused are asked for again.
void PlaceExecutor::cover_uses_of(std::span<const BlockIndex> blocks) {
  InlineList<StreamPoint, 4> ends;
  for (const BlockIndex index : blocks) {
    Block& block = blocks_[index.value];
    for (auto* const streams : {&block.unended, &block.recorded}) {
      while (!streams->empty()) {
        const std::uint32_t stream = streams->back();
        auto end = std::find_if(ends.begin(), ends.end(), [&](const auto& each) { return each.stream == stream; });
        if (end == ends.end()) {
          const auto point = end_of_uses(stream);
          if (!point) return;
          ends.push_back(*point);
          end = ends.end() - 1;
        }
        join(block.uses, *end);
        streams->pop_back();
      }
    }
  }
}

// All that it has to wait for is queued.
Result<void> PlaceExecutor::leave_with_others(BlockIndex index, MoveCause cause) {
  Block& block = blocks_[index.value];
  if (auto covered = cover_uses(block); !covered) return covered;
  auto made = make_slot(block);
  if (!made && made.error().cause == Cause::out_of_memory && !together_.out.empty()) {
    // Slots of copies that are not queued yet stay in pinned memory; of queued ones they can go on to the disk.
    if (auto queued = copy_out_together(); !queued) return queued;
    made = make_slot(block);
  }
  if (!made) return made;
  Fences before = block.uses;
  join(before, block.ready);
  block.is_copied = true;
  host_.will_fill(*block.slot);
  Result<void> left;
  if (goes_first(together_.out, block.bytes, out_number_, before)) left = copy_out_together();
  if (auto waits = let_wait(out_number_, before); !waits) {
    block.is_copied = false;
    return waits;
  }
  together_.out.push_back({.index = index, .offset = *arena_.offset(index), .cause = cause});
  return left;
}

Result<void> PlaceExecutor::copy_out_together() {
  return copy_queued(
      together_.out, together_.leaving, out_, out_number_,
      [this](const Eviction& each, StreamPoint copied) { copied_out(each, copied); },
      [this](const Eviction& each) { return copy_out(each); });
}

Result<void> PlaceExecutor::evict_all(std::span<const BlockIndex> blocks, MoveCause cause) {
  Result<void> all;
  if (blocks.size() > 1) cover_uses_of(blocks);
  const auto goes_with_others = [&](BlockIndex index) { return !blocks_[index.value].unchanged && is_small(index); };
  std::vector<BlockIndex>& alone = together_.leave_alone;
  alone.clear();
  for (const BlockIndex index : blocks) {
    if (!goes_with_others(index))
      alone.push_back(index);
    else if (arena_.in_place(index) && !blocks_[index.value].is_copied)  // else it is named twice
      keep(all, leave_with_others(index, cause));
  }
  if (!together_.out.empty()) keep(all, copy_out_together());
  for (const BlockIndex index : alone)
    if (arena_.in_place(index)) keep(all, evict(index, cause));
  return all;
}

Result<void> PlaceExecutor::leave_all(std::span<const Leaving> blocks) {
  std::vector<BlockIndex>& leaving = together_.may_leave;
  leaving.clear();
  for (const Leaving& each : blocks)
    if (may_leave(each.block)) leaving.push_back(each.block);
  auto left = evict_all(leaving, MoveCause::planned);
  for (const auto& [block, far] : blocks)
    if (far && !arena_.in_place(block) && !blocks_[block.value].dropped) host_.send_far(*blocks_[block.value].slot);
  return left;
}

// --- in --------------------------------------------------------------------------------------------------------------

bool PlaceExecutor::comes_with_others(BlockIndex index) {
  const Block& block = blocks_[index.value];
  return is_small(index) && !arena_.in_place(index) && !block.dropped && host_.is_near(*block.slot);
}

Result<void> PlaceExecutor::come_with_others(const Coming& what, MoveCause cause) {
  auto begun = begin_fetch(what, cause);
  if (!begun) return begun.error();
  Block& block = blocks_[what.block.value];
  Fences before = begun->fences;
  join(before, host_.filled_at(*block.slot));
  join(before, host_.read_at(*block.slot));  // slots remember the last reader
  block.is_copied = true;
  Result<void> others;
  if (goes_first(together_.in, block.bytes, in_number_, before)) others = copy_in_together();
  if (auto waits = let_wait(in_number_, before); !waits) {
    block.is_copied = false;
    undo_fetch(*begun);
    return waits;
  }
  together_.in.push_back(std::move(*begun));
  return others;
}

Result<void> PlaceExecutor::copy_in_together() {
  return copy_queued(
      together_.in, together_.coming, in_, in_number_,
      [this](const Fetch& each, StreamPoint copied) { end_fetch(each, copied); },
      [this](const Fetch& each) { return copy_in(each); });
}

// Small ones that follow each other go in few calls. Ends with end_fetches().
Result<void> PlaceExecutor::fetch_in_order(const Coming& what, MoveCause cause) {
  if (comes_with_others(what.block)) return come_with_others(what, cause);
  auto before = end_fetches();
  keep(before, fetch(what, cause));
  return before;
}

Result<void> PlaceExecutor::end_fetches() { return together_.in.empty() ? Result<void>() : copy_in_together(); }

Result<void> PlaceExecutor::bring_all(std::span<const Coming> blocks) {
  Result<void> all;
  std::vector<Coming>& alone = together_.come_alone;
  alone.clear();
  for (const Coming& each : blocks) {
    if (!comes_with_others(each.block)) {
      alone.push_back(each);
      continue;
    }
    static_cast<void>(take_coming(each.block));
    keep(all, come_with_others(each, MoveCause::planned));
  }
  keep(all, end_fetches());
  for (const Coming& each : alone) keep(all, bring_now(each));
  return all;
}

// A fetch that is refused is asked for again, alone.
void PlaceExecutor::fetch_small(std::span<const BlockIndex> blocks, bool unchanged) {
  for (const BlockIndex index : blocks) {
    if (!comes_with_others(index)) continue;
    const auto coming = take_coming(index);
    const Coming now{.block = index, .unchanged = unchanged};
    static_cast<void>(come_with_others(coming.value_or(now), coming ? MoveCause::planned : MoveCause::urgent));
  }
  static_cast<void>(end_fetches());
}

}  // namespace vedette
