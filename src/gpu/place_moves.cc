// The executor's copies: out of places, into places, and from the disk: see place_executor.h.
#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "gpu/place_executor.h"

namespace vedette {

using cuda::Address;
using cuda::StreamHandle;
using cuda::StreamPoint;

// One that no transfer to the disk uses.
Result<void> PlaceExecutor::make_slot(Block& block) {
  if (block.slot && !host_.has_disk()) return {};
  if (block.slot) host_.give_back(*std::exchange(block.slot, std::nullopt));
  auto slot = host_.take(block.bytes);
  while (!slot && slot.error().cause == Cause::out_of_memory && (read_queued_slots() || give_up_a_copy()))
    slot = host_.take(block.bytes);
  if (!slot) return slot.error();
  block.slot = *slot;
  return {};
}

// Those of fetches that are queued are free behind their copies. A fetch that is refused is asked for again by its op.
bool PlaceExecutor::read_queued_slots() {
  const bool any = !together_.in.empty();
  static_cast<void>(end_fetches());
  return any;
}

// Without a disk a block that has come back keeps its slot, so that its next copy out takes none. Where slots run out,
// blocks in place give theirs up: first one whose slot is written anew anyhow.
bool PlaceExecutor::give_up_a_copy() {
  Block* found = nullptr;
  for (std::uint32_t i = 0; i < blocks_.size(); ++i) {
    Block& block = blocks_[i];
    if (!block.alive || !block.slot || !arena_.in_place({i}) || (found != nullptr && block.unchanged)) continue;
    if (block.is_copied) continue;
    found = &block;
    if (!block.unchanged) break;
  }
  if (found == nullptr) return false;
  found->unchanged = false;
  host_.give_back(*std::exchange(found->slot, std::nullopt));
  return true;
}

bool PlaceExecutor::has_slot(BlockIndex index) const { return blocks_[index.value].slot.has_value(); }

void PlaceExecutor::prepare_slots(std::vector<Bytes> slots) { host_.prepare(std::move(slots)); }

Result<void> PlaceExecutor::copy(const Transfer& transfer, const cuda::Copy& wanted) {
  owner_.begins(transfer);
  if (auto queued = device_->copy(transfer.stream, wanted.to, wanted.from, wanted.bytes); !queued) return queued;
  owner_.is_queued(transfer);
  return {};
}

// The place is free behind the block's last uses; its slot holds the same bytes.
void PlaceExecutor::leave_without_copy(BlockIndex index, MoveCause cause) {
  const Block& block = blocks_[index.value];
  counters_.unchanged += block.bytes;
  const StreamHandle last = block.uses.empty() ? in_.handle() : points_.handle_of(block.uses.back().stream);
  const Transfer transfer{.verb = Verb::drop, .cause = cause, .block = index, .bytes = block.bytes, .stream = last};
  owner_.begins(transfer);
  owner_.is_queued(transfer);
}

PlaceExecutor::Transfer PlaceExecutor::transfer_of(const Eviction& leaving) const {
  return {.verb = Verb::evict,
          .cause = leaving.cause,
          .block = leaving.index,
          .bytes = blocks_[leaving.index.value].bytes,
          .stream = out_.handle()};
}

cuda::Copy PlaceExecutor::copy_of(const Eviction& leaving) const {
  const Block& block = blocks_[leaving.index.value];
  return {.to = reinterpret_cast<Address>(host_.memory(*block.slot)),
          .from = range_.address() + leaving.offset,
          .bytes = block.bytes};
}

// Behind the block's last uses, into its slot.
Result<void> PlaceExecutor::copy_out(const Eviction& leaving) {
  const Block& block = blocks_[leaving.index.value];
  if (auto waits = let_wait(out_number_, block.uses); !waits) return waits;
  // A slot that was read was read by the copy that brought the block.
  if (auto waits = points_.let_wait(out_number_, block.ready); !waits) return waits;
  if (auto queued = copy(transfer_of(leaving), copy_of(leaving)); !queued) return queued;
  const auto copied = points_.mark(out_number_);
  if (!copied) {
    static_cast<void>(out_.synchronize());  // the block stays in place, and no copy of it runs on
    return copied.error();
  }
  copied_out(leaving, *copied);
  return {};
}

// Its place is written again behind its copy.
void PlaceExecutor::copied_out(const Eviction& leaving, StreamPoint copied) {
  const Block& block = blocks_[leaving.index.value];
  host_.filled(*block.slot, copied);
  ++counters_.evictions;
  counters_.evicted += block.bytes;
  has_left(leaving, {copied});
}

// `before`: points to pass before the place is written again.
void PlaceExecutor::has_left(const Eviction& leaving, const Fences& before) {
  Block& block = blocks_[leaving.index.value];
  if (leaving.cause == MoveCause::room) leaves_too_soon(leaving.index);
  block.uses.clear();
  block.ready = {};
  block.unchanged = false;
  arena_.remove(leaving.index);
  remember(leaving.offset, rounded(block.bytes), before);
  owner_.moved(leaving.index, 0);
}

Result<void> PlaceExecutor::evict(BlockIndex index, MoveCause cause) {
  Block& block = blocks_[index.value];
  const Eviction leaving{.index = index, .offset = *arena_.offset(index), .cause = cause};
  if (auto covered = cover_uses(block); !covered) return covered;
  if (!block.unchanged) {
    if (auto made = make_slot(block); !made) return made;
    return copy_out(leaving);
  }
  Fences before = block.uses;
  join(before, block.ready);
  leave_without_copy(index, cause);
  has_left(leaving, before);
  return {};
}

// Its place is taken, and its slot stays near. Ends with end_fetch() or undo_fetch().
Result<PlaceExecutor::Fetch> PlaceExecutor::begin_fetch(const Coming& what, MoveCause cause) {
  const HostSlot slot = *blocks_[what.block.value].slot;
  if (blocks_[what.block.value].in_slot > 0)
    return Error{.cause = Cause::out_of_memory, .message = "a tensor is used in host memory, and comes after that"};
  if (auto there = host_.need(slot); !there) return there.error();
  const Bytes bytes = blocks_[what.block.value].bytes;
  const auto offset = room_for(what.block, bytes, what.place);
  if (!offset) {
    host_.forget_wish(slot);
    return offset.error();
  }
  return Fetch{.what = what, .cause = cause, .offset = *offset, .fences = take_fences(*offset, rounded(bytes))};
}

// No copy into the place runs.
void PlaceExecutor::undo_fetch(const Fetch& fetch) {
  const Block& block = blocks_[fetch.block().value];
  host_.forget_wish(*block.slot);
  arena_.remove(fetch.block());
  remember(fetch.offset, rounded(block.bytes), fetch.fences);
}

PlaceExecutor::Transfer PlaceExecutor::transfer_of(const Fetch& fetch) const {
  const Block& block = blocks_[fetch.block().value];
  return {.verb = Verb::fetch,
          .cause = fetch.cause,
          .block = fetch.block(),
          .bytes = block.bytes,
          .slow = static_cast<std::uint8_t>(host_.was_far(*block.slot) ? 2 : 1),
          .stream = in_.handle()};
}

cuda::Copy PlaceExecutor::copy_of(const Fetch& fetch) const {
  const Block& block = blocks_[fetch.block().value];
  return {.to = range_.address() + fetch.offset,
          .from = reinterpret_cast<Address>(host_.memory(*block.slot)),
          .bytes = block.bytes};
}

void PlaceExecutor::end_fetch(const Fetch& fetch, StreamPoint copied) {
  const BlockIndex index = fetch.block();
  Block& block = blocks_[index.value];
  const bool was_far = host_.was_far(*block.slot);
  host_.is_read(*block.slot, copied);
  block.ready = copied;
  block.unchanged = fetch.what.unchanged;
  // A slot that is of no use for the block's next copy out makes room at once.
  if (host_.has_disk() && !block.unchanged) host_.give_back(*std::exchange(block.slot, std::nullopt));
  if (block.movable) arena_.allow_moves(index);
  counters_.most_in_use = std::max(counters_.most_in_use, arena_.in_use());
  owner_.moved(index, range_.address() + fetch.offset);
  ++counters_.fetches;
  counters_.fetched += block.bytes;
  if (was_far) counters_.from_far += block.bytes;
}

// Behind the last uses of its place, and the copy that filled its slot.
Result<void> PlaceExecutor::copy_in(const Fetch& fetch) {
  const auto queue = [&]() -> Result<StreamPoint> {
    if (auto waits = let_wait(in_number_, fetch.fences); !waits) return waits.error();
    const HostSlot slot = *blocks_[fetch.block().value].slot;
    // Slots remember the last reader.
    for (const StreamPoint& use : {host_.filled_at(slot), host_.read_at(slot)}) {
      if (auto waits = points_.let_wait(in_number_, use); !waits) return waits.error();
    }
    if (auto queued = copy(transfer_of(fetch), copy_of(fetch)); !queued) return queued.error();
    return points_.mark(in_number_);
  };
  const auto copied = queue();
  if (!copied) {
    static_cast<void>(in_.synchronize());  // no copy into the place runs on
    undo_fetch(fetch);
    return copied.error();
  }
  end_fetch(fetch, *copied);
  return {};
}

Result<void> PlaceExecutor::fetch(const Coming& what, MoveCause cause) {
  const auto begun = begin_fetch(what, cause);
  if (!begun) return begun.error();
  return copy_in(*begun);
}

std::optional<PlaceExecutor::Coming> PlaceExecutor::take_coming(BlockIndex index) {
  const auto found =
      std::find_if(coming_.begin(), coming_.end(), [&](const Coming& each) { return each.block == index; });
  if (found == coming_.end()) return std::nullopt;
  const Coming taken = *found;
  coming_.erase(found);
  return taken;
}

// Behind `made`, into the block's place or its slot.
Result<StreamPoint> PlaceExecutor::copy_born(BlockIndex index, Address from, StreamPoint made) {
  Block& block = blocks_[index.value];
  const auto offset = arena_.offset(index);
  if (!offset) {
    if (auto slot = make_slot(block); !slot) return slot.error();
  }
  const std::uint32_t number = offset ? in_number_ : out_number_;
  if (auto waits = points_.let_wait(number, made); !waits) return waits.error();
  const Fences fences = offset ? take_fences(*offset, rounded(block.bytes)) : Fences();
  auto queue = [&]() -> Result<StreamPoint> {
    if (auto waits = let_wait(number, fences); !waits) return waits.error();
    const Address to = offset ? range_.address() + *offset : reinterpret_cast<Address>(host_.memory(*block.slot));
    if (auto queued = device_->copy(points_.handle_of(number), to, from, block.bytes); !queued) return queued.error();
    return points_.mark(number);
  };
  auto copied = queue();
  if (copied) {
    if (auto waited = points_.wait(*copied); !waited) copied = waited.error();
  }
  if (!copied) {
    static_cast<void>((offset ? in_ : out_).synchronize());  // no copy runs on
    if (offset) remember(*offset, rounded(block.bytes), fences);
  }
  return copied;
}

Result<PlaceExecutor::Born> PlaceExecutor::allocate_copy(Bytes bytes, Address from, StreamHandle stream) {
  const BlockIndex index = unused_index();
  const std::uint32_t number = points_.number_of(stream);
  Block& block = blocks_[index.value] = {.bytes = bytes, .alive = true, .owners = {number}};
  const bool in_place = arena_.place(index, bytes).has_value();
  const auto made = points_.mark(number);
  const auto copied = made ? copy_born(index, from, *made) : made;
  if (!copied) {
    if (in_place) arena_.remove(index);
    if (block.slot) host_.give_back(*block.slot);
    block = {};
    unused_.push_back(index);
    return copied.error();
  }
  if (in_place) {
    arena_.use_before_all(index);
    block.ready = *copied;
  } else {
    host_.filled(*block.slot, *copied);
  }
  uses_.replaced(index);
  counters_.live += bytes;
  counters_.most_live = std::max(counters_.most_live, counters_.live);
  counters_.most_in_use = std::max(counters_.most_in_use, arena_.in_use());
  return Born{.block = index, .address = in_place ? range_.address() + *arena_.offset(index) : 0};
}

Result<void> PlaceExecutor::copy_to(BlockIndex index, Address to, StreamHandle stream) {
  Block& block = blocks_[index.value];
  if (still_) {  // ops that were not announced may write it, on whatever stream
    if (auto passed = device_->synchronize(); !passed) return passed;
  }
  if (arena_.in_place(index)) {
    if (auto there = begin_again({&index, 1}, stream); !there) return there;
    auto queued = device_->copy(stream, to, address(index), block.bytes);
    end_again({&index, 1}, stream);
    return queued;
  }
  VEDETTE_ASSERT(block.slot.has_value());
  const HostSlot slot = *block.slot;
  if (auto there = host_.need(slot); !there) return there;
  const std::uint32_t number = points_.number_of(stream);
  const auto queue = [&]() -> Result<StreamPoint> {
    for (const StreamPoint& use : {host_.filled_at(slot), host_.read_at(slot)})
      if (auto waits = points_.let_wait(number, use); !waits) return waits.error();
    const Address from = reinterpret_cast<Address>(host_.memory(slot));
    if (auto queued = device_->copy(stream, to, from, block.bytes); !queued) return queued.error();
    return points_.mark(number);
  };
  const auto copied = queue();
  if (copied) {
    host_.is_read(slot, *copied);
    if (block.in_slot > 0) host_.will_fill(slot);
    join(block.uses, *copied);  // the next copy out writes there
    return {};
  }
  static_cast<void>(device_->calls().stream_synchronize(stream));  // no copy runs on
  if (block.in_slot == 0) host_.forget_wish(slot);
  return copied.error();
}

// Slots that the disk has brought go on to the device.
void PlaceExecutor::advance() {
  if (!host_.has_disk()) return;
  host_.advance();
  for (std::size_t i = 0; i < coming_.size();) {
    const Coming next = coming_[i];
    const HostSlot slot = *blocks_[next.block.value].slot;
    if (!host_.is_near(slot)) {
      host_.bring(slot);  // where there was no room before
      ++i;
      continue;
    }
    coming_.erase(coming_.begin() + static_cast<std::ptrdiff_t>(i));
    static_cast<void>(fetch_in_order(next, MoveCause::planned));  // refused: the op that needs it says so
  }
  static_cast<void>(end_fetches());
}

Result<void> PlaceExecutor::leave(BlockIndex index, bool far) {
  if (may_leave(index)) {
    if (auto left = evict(index, MoveCause::planned); !left) return left;
  }
  if (far && !arena_.in_place(index) && !blocks_[index.value].dropped) host_.send_far(*blocks_[index.value].slot);
  return {};
}

Result<void> PlaceExecutor::bring_now(const Coming& what) {
  const Block& block = blocks_[what.block.value];
  if (arena_.in_place(what.block) || block.dropped) return {};
  static_cast<void>(take_coming(what.block));
  host_.bring(*block.slot);
  if (host_.is_near(*block.slot)) return fetch(what, MoveCause::planned);
  coming_.push_back(what);
  return {};
}

Result<void> PlaceExecutor::bring(BlockIndex index, Place place, bool unchanged) {
  return bring_now({.block = index, .place = place, .unchanged = unchanged});
}

void PlaceExecutor::may_change(BlockIndex index) {
  Block& block = blocks_[index.value];
  // A slot that is of no use for the block's next copy out makes room at once.
  if (block.unchanged && host_.has_disk()) host_.give_back(*std::exchange(block.slot, std::nullopt));
  block.unchanged = false;
  for (Coming& each : coming_)
    if (each.block == index) each.unchanged = false;
}

void PlaceExecutor::forget_plan() {
  for (Block& block : blocks_) block.unchanged = false;
  for (const Coming& each : coming_) host_.forget_wish(*blocks_[each.block.value].slot);
  coming_.clear();
}

}  // namespace vedette
