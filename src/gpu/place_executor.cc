// Births, evictions, fetches and the memory of places: see place_executor.h.
#include "gpu/place_executor.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/readable.h"

namespace vedette {

using cuda::Address;
using cuda::StreamHandle;
using cuda::StreamPoint;

namespace {

// A place is often written again hundreds of ops after its last use. An event that was recorded again by then would let
// the copy wait for ops that came later.
constexpr std::uint32_t events_a_stream = 4096;

}  // namespace

Result<std::unique_ptr<PlaceExecutor>> PlaceExecutor::make(std::shared_ptr<const cuda::Device> device,
                                                           const Options& options, Owner& owner,
                                                           std::unique_ptr<DiskThread> disk) {
  constexpr std::uint64_t pieces = 16;  // of a budget, in which it can change
  auto range = cuda::DeviceRange::make(
      device, {.bytes = options.budget,
               .most = options.most,
               .handle = {std::clamp<std::uint64_t>(options.budget.value / pieces, 1, Bytes{64_MiB}.value)},
               .managed = options.managed});
  if (!range) return range.error();
  auto in = cuda::Stream::create(device), out = cuda::Stream::create(device);
  if (!in) return in.error();
  if (!out) return out.error();
  return std::unique_ptr<PlaceExecutor>(new PlaceExecutor(
      std::move(device), options, owner,
      {.range = std::move(*range), .in = std::move(*in), .out = std::move(*out), .disk = std::move(disk)}));
}

PlaceExecutor::PlaceExecutor(std::shared_ptr<const cuda::Device> device, const Options& options, Owner& owner,
                             Parts parts)
    : device_(device),
      options_(options),
      owner_(owner),
      range_(std::move(parts.range)),
      in_(std::move(parts.in)),
      out_(std::move(parts.out)),
      points_(device_, events_a_stream),
      host_(
          device_, points_,
          {.most_pinned = options.most_pinned,
           .disk = std::move(parts.disk),
           .waiting = [this](HostSlots::WaitsFor what, bool begins) { tell_of_wait(what, begins); },
           .pins_no_more = [this](Bytes limit, bool there_is_a_disk) { owner_.pins_no_more(limit, there_is_a_disk); }}),
      in_number_(points_.number_of(in_.handle())),
      out_number_(points_.number_of(out_.handle())),
      arena_(options.budget, options.alignment) {}

PlaceExecutor::~PlaceExecutor() {
  const cuda::Current current(*device_);
  // The last uses of places and slots: memory goes away behind them. Where one wait is refused another one is for all
  // of the stream; where that is refused, too, the device is lost anyway.
  const auto wait_for_all_of = [&](StreamHandle stream) {
    const auto& calls = device_->calls();
    if (calls.stream_synchronize(stream) != cuda::success) static_cast<void>(calls.stream_synchronize(stream));
  };
  const auto wait_for = [&](StreamPoint point) {
    if (!points_.wait(point)) wait_for_all_of(points_.handle_of(point.stream));
  };
  if (still_) static_cast<void>(device_->synchronize());  // on whatever stream
  wait_for_all_of(in_.handle());
  wait_for_all_of(out_.handle());
  for (auto& [offset, remembered] : remembered_) {
    for (const StreamPoint& fence : remembered.fences) wait_for(fence);
  }
  for (Block& block : blocks_) {
    if (!cover_uses(block)) wait_for_uses(block);
    for (const StreamPoint& use : block.uses) wait_for(use);
  }
}

void PlaceExecutor::join(Fences& fences, StreamPoint point) {
  if (point.number == 0) return;
  for (StreamPoint& each : fences) {
    if (each.stream != point.stream) continue;
    each.number = std::max(each.number, point.number);
    return;
  }
  fences.push_back(point);
}

Result<void> PlaceExecutor::let_wait(std::uint32_t stream, const Fences& fences) {
  for (const StreamPoint& each : fences) {
    if (auto waits = points_.let_wait(stream, each); !waits) return waits;
  }
  return {};
}

void PlaceExecutor::tell_of_wait(HostSlots::WaitsFor what, bool begins) {
  begins ? owner_.wait_begins(what) : owner_.wait_ends();
}

Result<void> PlaceExecutor::let_wait_for_room(std::uint32_t stream, const Fences& fences) {
  const bool waits = std::any_of(fences.begin(), fences.end(),
                                 [&](const StreamPoint& each) { return points_.has_to_wait(stream, each); });
  if (waits) tell_of_wait(HostSlots::WaitsFor::room, true);
  auto waited = let_wait(stream, fences);
  if (waits) tell_of_wait(HostSlots::WaitsFor::room, false);
  return waited;
}

std::uint64_t PlaceExecutor::rounded(Bytes bytes) const noexcept {
  const std::uint64_t unit = options_.alignment.value;
  return (std::max<std::uint64_t>(bytes.value, 1) + unit - 1) / unit * unit;
}

// Points that holes remember are kept in intervals that do not overlap: a place that is taken cuts them at its ends.
void PlaceExecutor::remember(std::uint64_t offset, std::uint64_t bytes, const Fences& fences) {
  if (!fences.empty()) remembered_[offset] = {.end = offset + bytes, .fences = fences};
}

PlaceExecutor::Fences PlaceExecutor::take_fences(std::uint64_t offset, std::uint64_t bytes) {
  Fences all;
  const std::uint64_t end = offset + bytes;
  auto each = remembered_.upper_bound(offset);
  if (each != remembered_.begin() && std::prev(each)->second.end > offset) --each;
  while (each != remembered_.end() && each->first < end) {
    const auto [begin, old] = *each;
    each = remembered_.erase(each);
    for (const StreamPoint& fence : old.fences) join(all, fence);
    if (begin < offset) remembered_[begin] = {.end = offset, .fences = old.fences};
    if (old.end > end) remembered_[end] = {.end = old.end, .fences = old.fences};
  }
  return all;
}

// Behind all that is queued. A stream that is not the default one may be destroyed before its event is needed.
Result<StreamPoint> PlaceExecutor::end_of_uses(std::uint32_t stream) {
  if (ends_ == Ends::noted && points_.handle_of(stream) == nullptr) return points_.note(stream);
  return points_.mark(stream);
}

// Points for work that is queued and that no point covers yet.
Result<void> PlaceExecutor::cover_uses(Block& block) {
  for (auto* const streams : {&block.unended, &block.recorded}) {
    while (!streams->empty()) {
      const auto point = end_of_uses(streams->back());
      if (!point) return point.error();
      join(block.uses, *point);
      streams->pop_back();
    }
  }
  return {};
}

// Where no point can be marked the host waits for the work itself.
void PlaceExecutor::wait_for_uses(Block& block) {
  for (auto* const streams : {&block.unended, &block.recorded}) {
    for (const std::uint32_t stream : *streams) {
      const int refused = device_->calls().stream_synchronize(points_.handle_of(stream));
      if (refused == cuda::success) continue;
      if (!device_->synchronize())  // else the program has destroyed the stream
        die(device_->driver().error(refused, "waiting for the last use of memory").message.c_str());
    }
    streams->clear();
  }
}

bool PlaceExecutor::may_leave(BlockIndex index) {
  if (!arena_.may_leave(index)) return false;
  if (owner_.may_move(index)) return true;
  arena_.forbid_moves(index);
  blocks_[index.value].movable = false;
  return false;
}

// All of them leave. False: one may not, and none has left for it.
bool PlaceExecutor::clear(const std::vector<BlockIndex>& blocks, MoveCause cause, Result<void>& left) {
  bool all = true;
  for (const BlockIndex block : blocks) all = may_leave(block) && all;
  if (!all) return false;
  left = evict_all(blocks, cause);
  return true;
}

Result<std::uint64_t> PlaceExecutor::room_for(BlockIndex index, Bytes bytes, Place place) {
  if (!place) return any_room_for(index, bytes);
  if (arena_.place_at(index, bytes, *place)) return *place;
  if (still_) return any_room_for(index, bytes);
  if (const auto occupants = arena_.occupants(*place, bytes)) {
    Result<void> left;
    if (clear(*occupants, MoveCause::room, left)) {
      if (!left) return left.error();
      if (arena_.place_at(index, bytes, *place)) return *place;
    }
  }
  ++counters_.misplaced;
  return any_room_for(index, bytes);
}

Result<std::uint64_t> PlaceExecutor::any_room_for(BlockIndex index, Bytes bytes) {
  if (const auto offset = arena_.place(index, bytes)) return *offset;
  auto leaving = still_ ? std::nullopt : victims(bytes);
  Result<void> left;
  while (leaving && !clear(*leaving, MoveCause::room, left)) leaving = victims(bytes);
  if (!left) return left.error();
  if (!leaving)
    return Error{.cause = Cause::out_of_memory,
                 .message = readable(bytes) +
                            " of GPU memory are asked for in one piece, and what the op uses leaves less of " +
                            readable(arena_.bytes()) + "; give a larger budget, or a smaller batch"};
  const auto offset = arena_.place(index, bytes);
  VEDETTE_ASSERT(offset.has_value());
  return *offset;
}

PlaceExecutor::BlockIndex PlaceExecutor::unused_index() {
  if (unused_.empty()) {
    blocks_.emplace_back();
    return {static_cast<std::uint32_t>(blocks_.size() - 1)};
  }
  const BlockIndex index = unused_.back();
  unused_.pop_back();
  return index;
}

Result<PlaceExecutor::Born> PlaceExecutor::allocate(Bytes bytes, StreamHandle stream, Place place) {
  const BlockIndex index = unused_index();
  const auto give_up = [&](const Error& error) {
    if (arena_.in_place(index)) arena_.remove(index);
    unused_.push_back(index);
    return error;
  };
  const auto offset = room_for(index, bytes, place);
  if (!offset) return give_up(offset.error());
  const std::uint32_t number = points_.number_of(stream);
  const std::uint64_t whole = rounded(bytes);
  const Fences fences = take_fences(*offset, whole);
  if (auto waits = let_wait_for_room(number, fences); !waits) {
    remember(*offset, whole, fences);
    return give_up(waits.error());
  }
  blocks_[index.value] = {.bytes = bytes, .alive = true, .unended = {number}, .owners = {number}};
  uses_.replaced(index);
  counters_.live += bytes;
  counters_.most_live = std::max(counters_.most_live, counters_.live);
  counters_.most_in_use = std::max(counters_.most_in_use, arena_.in_use());
  return Born{.block = index, .address = range_.address() + *offset};
}

void PlaceExecutor::release(BlockIndex index) {
  Block& block = blocks_[index.value];
  VEDETTE_ASSERT(block.alive);
  block.alive = false;
  counters_.live -= block.bytes;
  if (block.pins == 0) bury(index);
}

void PlaceExecutor::bury(BlockIndex index) {
  Block& block = blocks_[index.value];
  if (const auto offset = arena_.offset(index)) {
    if (!cover_uses(block)) {
      const cuda::Current current(*device_);  // a thread that only frees memory may have no context
      if (!cover_uses(block)) wait_for_uses(block);
    }
    Fences fences = block.uses;
    join(fences, block.ready);
    arena_.remove(index);
    remember(*offset, rounded(block.bytes), fences);
  }
  if (block.slot) host_.give_back(*block.slot);
  static_cast<void>(take_coming(index));
  block = {};
  unused_.push_back(index);
}

void PlaceExecutor::allow_moves(BlockIndex index) {
  blocks_[index.value].movable = true;
  if (arena_.in_place(index)) arena_.allow_moves(index);
}

void PlaceExecutor::forbid_moves(BlockIndex index) {
  blocks_[index.value].movable = false;
  if (arena_.in_place(index)) arena_.forbid_moves(index);
}

void PlaceExecutor::cover_all_uses() {
  for (Block& block : blocks_)
    if (!cover_uses(block)) wait_for_uses(block);
}

void PlaceExecutor::record_stream(BlockIndex index, StreamHandle stream) {
  Block& block = blocks_[index.value];
  const std::uint32_t number = points_.number_of(stream);
  block.unchanged = false;  // that work may write it
  let_use(number, block);
  if (!block.recorded.contains(number)) block.recorded.push_back(number);
  if (!block.owners.contains(number)) block.owners.push_back(number);
}

Address PlaceExecutor::address(BlockIndex index) const {
  const auto offset = arena_.offset(index);
  const Block& block = blocks_[index.value];
  if (block.in_slot > 0) return reinterpret_cast<Address>(host_.memory(*block.slot));
  return offset ? range_.address() + *offset : 0;
}

Bytes PlaceExecutor::bytes(BlockIndex index) const { return blocks_[index.value].bytes; }

PlaceExecutor::Place PlaceExecutor::place(BlockIndex index) const { return arena_.offset(index); }

moves::RangeAllocator::Stretch PlaceExecutor::longest_movable() const { return arena_.longest_movable(); }

PlaceExecutor::Counters PlaceExecutor::counters() const {
  Counters counters = counters_;
  counters.in_use = arena_.in_use();
  counters.host = host_.counters();
  return counters;
}

}  // namespace vedette
