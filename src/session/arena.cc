// Places and living tensors: see arena.h.
#include "session/arena.h"

#include <algorithm>
#include <utility>

#include "base/readable.h"

namespace vedette::detail {
namespace {

std::uint64_t counted(std::uint64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

Arena::Arena(Mapping memory, Bytes chunk, Heap::Chunks use)
    : memory_(std::move(memory)),
      chunk_(chunk.value),
      heap_(static_cast<std::uint32_t>(memory_.bytes().value / chunk.value), chunk, use),
      recent_(most_recent) {}

ChunkRange Arena::chunks_of(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  const auto first = static_cast<std::uint32_t>(offset / chunk_);
  const auto last = static_cast<std::uint32_t>((offset + std::max<std::uint64_t>(bytes, 1) - 1) / chunk_);
  return {{first}, {last + 1}};
}

std::optional<Arena::Place> Arena::take(const Wanted& wanted) {
  Place place{.offset = 0, .bytes = wanted.bytes, .lasting = wanted.lasting};
  if (wanted.planned) {
    place.offset = *wanted.planned;
    place.planned = true;
  } else if (const auto alone = wanted.alone ? heap_.allocate_alone(wanted.bytes) : std::nullopt) {
    place.offset = *alone;
    place.alone = true;
  } else if (wanted.again && heap_.allocate_at(*wanted.again, wanted.bytes, wanted.lasting)) {
    place.offset = *wanted.again;
  } else {
    const auto found = heap_.allocate(wanted.bytes, wanted.alignment, wanted.lasting);
    if (!found) return std::nullopt;
    place.offset = found->offset;
    place.slab = found->small;
    if (found->new_slab_chunk) set_slab({*found->new_slab_chunk}, SlabChunk::unborn);
  }
  place.chunks = chunks_of(place.offset, place.bytes);
  return place;
}

void Arena::give_back(const Place& place) {
  if (place.slab) {
    const auto released = heap_.release_small(place.offset);
    if (released && released->emptied && slab_is_unborn(place.chunks.first())) free_slab_chunk(place.chunks.first());
    return;
  }
  if (place.alone) return heap_.release_alone(place.offset, place.bytes);
  if (!place.planned) heap_.release(place.offset, place.bytes, place.lasting);
}

bool Arena::room_at(std::uint64_t offset, std::uint64_t bytes) const {
  const auto next = tensors_.lower_bound(offset);
  if (next != tensors_.end() && next->first < offset + bytes) return false;
  if (next == tensors_.begin()) return true;
  const auto& [before, live] = *std::prev(next);
  return before + live.bytes.value <= offset;
}

void Arena::release_zone(std::uint64_t offset, std::uint64_t bytes) {
  const auto first = tensors_.lower_bound(offset);
  const bool lives = first != tensors_.end() && first->first < offset + bytes;
  lives ? waiting_.push_back({.offset = offset, .bytes = bytes}) : heap_.release_zone(offset, bytes);
}

void Arena::count(std::uint64_t bytes) {
  live_bytes_ += counted(bytes);
  peak_bytes_ = std::max(peak_bytes_, live_bytes_);
}

void Arena::uncount(std::uint64_t bytes) { live_bytes_ -= counted(bytes); }

void Arena::add_small(const Place& place) {
  ++small_;
  count(place.bytes);
}

const Live& Arena::add(const Place& place, Live what) {
  what.bytes = {place.bytes};
  what.lasting = place.lasting;
  what.planned = place.planned;
  what.small = place.alone;
  count(place.bytes);
  return tensors_[place.offset] = std::move(what);
}

std::optional<Arena::Small> Arena::remove_small(std::uint64_t offset) {
  const auto released = heap_.release_small(offset);
  if (!released) return std::nullopt;
  --small_;
  uncount(released->bytes);
  const ChunkIndex chunk = chunks_of(offset, 1).first();
  return Small{.chunk = chunk, .last = released->emptied && slab_at(chunk) == SlabChunk::may_leave};
}

void Arena::set_slab(ChunkIndex chunk, SlabChunk kind) {
  if (chunk.value >= slab_.size()) slab_.resize(chunk.value + std::size_t{1});
  slab_[chunk.value] = kind;
}

void Arena::slab_is_born(ChunkIndex chunk, bool stays) {
  set_slab(chunk, stays ? SlabChunk::stays : SlabChunk::may_leave);
  ++(stays ? slab_stay_ : slab_may_leave_);
}

std::vector<ChunkIndex> Arena::let_slab_leave(std::uint32_t most) {
  std::vector<ChunkIndex> leave;
  for (ChunkIndex c{static_cast<std::uint32_t>(slab_.size())}; slab_stay_ > most && c.value-- > 0;) {
    if (slab_at(c) != SlabChunk::stays) continue;
    set_slab(c, SlabChunk::may_leave);
    --slab_stay_;
    ++slab_may_leave_;
    leave.push_back(c);
  }
  return leave;
}

std::optional<ChunkIndex> Arena::slab_chunk_that_may_leave(const void* address) const {
  if (slab_may_leave_ == 0) return std::nullopt;
  const ChunkIndex chunk = chunks_of(offset_of(address), 1).first();
  return slab_at(chunk) == SlabChunk::may_leave ? std::optional(chunk) : std::nullopt;
}

void Arena::free_slab_chunk(ChunkIndex chunk) {
  if (slab_at(chunk) == SlabChunk::may_leave) --slab_may_leave_;
  set_slab(chunk, SlabChunk::none);
  heap_.release_slab_chunk(std::uint64_t{chunk.value} * chunk_);
}

std::optional<Live> Arena::remove(std::uint64_t offset) {
  if (Recent& known = recent(offset); known.offset == offset) known = {};
  auto found = tensors_.extract(offset);
  if (found.empty()) return std::nullopt;
  uncount(found.mapped().bytes.value);
  return std::move(found.mapped());
}

void Arena::free_place(std::uint64_t offset, const Live& dead) {
  give_back({.offset = offset,
             .bytes = dead.bytes.value,
             .lasting = dead.lasting,
             .alone = dead.small,
             .planned = dead.planned});
  if (!dead.planned) return;
  const auto zone = std::find_if(waiting_.begin(), waiting_.end(), [&](const Zone& each) {
    return each.offset <= offset && offset < each.offset + each.bytes;
  });
  if (zone == waiting_.end()) return;
  const auto [begin, bytes] = *zone;
  waiting_.erase(zone);
  release_zone(begin, bytes);
}

Arena::Tensors::const_iterator Arena::holding(const void* address) const {
  const std::uint64_t offset = offset_of(address);
  if (slab_at({static_cast<std::uint32_t>(offset / chunk_)}) != SlabChunk::none) return tensors_.end();
  Recent& known = recent(offset);
  if (known.offset == offset) return known.tensor;
  auto found = tensors_.upper_bound(offset);
  if (found == tensors_.begin()) return tensors_.end();
  --found;
  if (offset >= found->first + std::max<std::uint64_t>(found->second.bytes.value, 1)) return tensors_.end();
  if (found->first == offset) known = {.offset = offset, .tensor = found};
  return found;
}

bool Arena::lasts(std::uint64_t offset) const {
  const auto found = tensors_.find(offset);
  return found != tensors_.end() && found->second.lasting;
}

void Arena::label(std::uint64_t offset, std::string_view name, TensorKind kind) {
  Live& live = tensors_.at(offset);
  live.name.assign(name);
  live.kind = kind;
}

bool Arena::shape(std::uint64_t offset, std::span<const std::int64_t> sizes) {
  Live& live = tensors_.at(offset);
  if (!live.shape.empty()) return false;
  live.shape.assign(sizes.begin(), sizes.end());
  return true;
}

std::string Arena::names_in(ChunkIndex chunk, std::size_t most) const {
  const std::uint64_t begin = std::uint64_t{chunk.value} * chunk_, end = begin + chunk_;
  std::string text;
  std::size_t named = 0;
  auto tensor = tensors_.upper_bound(begin);
  if (tensor != tensors_.begin()) --tensor;
  for (; tensor != tensors_.end() && tensor->first < end && named < most; ++tensor) {
    const auto& [offset, live] = *tensor;
    if (offset + live.bytes.value <= begin) continue;
    text += (named++ == 0 ? ", tensor " : ", ") +
            (live.name.empty() ? std::string("without a name") : "'" + live.name + "'") + " of " + readable(live.bytes);
  }
  return text;
}

}  // namespace vedette::detail
