#include "session/slab.h"

#include <algorithm>
#include <bit>

#include "base/architecture.h"
#include "base/arithmetic.h"
#include "base/assert.h"

namespace vedette {
namespace {

const std::uint64_t page = page_size;

// Four classes to a power of two, multiples of 64: at most a quarter is lost.
std::uint64_t size_class(std::uint64_t bytes) {
  const std::uint64_t rounded = round_up(bytes, 64);
  const std::uint64_t step = std::max<std::uint64_t>(64, std::bit_floor(rounded) / 4);
  return round_up(rounded, step);
}

}  // namespace

std::optional<std::uint64_t> Slab::allocate(std::uint64_t bytes) {
  const std::uint64_t object = size_class(bytes);
  auto& with_room = with_room_[object];
  if (with_room.empty() && !add_span(object)) return std::nullopt;
  const auto place = with_room.begin();
  Chunk& chunk = chunks_.at(by_order_.at(place->first));
  Span& span = chunk.spans[place->second];
  const std::uint16_t slot = span.free;
  std::uint16_t& entry = chunk.slots[span.first_slot + slot];
  span.free = entry;
  entry = static_cast<std::uint16_t>(in_use | (bytes + 63) / 64);
  ++chunk.used;
  if (++span.used == span.slots) with_room.erase(place);
  return chunk.offset + span.first_page * page + slot * object;
}

bool Slab::add_span(std::uint64_t object) {
  const std::uint64_t pages = round_up(std::max<std::uint64_t>(page, object * 4), page) / page;
  if (!newest_) return false;
  Chunk& chunk = chunks_.at(*newest_);
  if (chunk.next_page + pages > chunk_ / page) return false;
  Span span{.first_slot = static_cast<std::uint32_t>(chunk.slots.size()),
            .first_page = chunk.next_page,
            .object = static_cast<std::uint32_t>(object),
            .slots = static_cast<std::uint16_t>(pages * page / object)};
  for (std::uint16_t s = 1; s <= span.slots; ++s) chunk.slots.push_back(s < span.slots ? s : end_of_list);
  const auto index = static_cast<std::uint32_t>(chunk.spans.size());
  for (std::uint64_t p = 0; p < pages; ++p) chunk.span_of_page.push_back(index);
  chunk.next_page += static_cast<std::uint32_t>(pages);
  chunk.spans.push_back(span);
  with_room_[object].emplace(chunk.order, index);
  return true;
}

void Slab::add_chunk(std::uint64_t offset) {
  const std::uint64_t number = offset / chunk_;
  const auto [at, fresh] = chunks_.try_emplace(number);
  VEDETTE_ASSERT(fresh && offset % chunk_ == 0);
  at->second.offset = offset;
  at->second.order = next_order_;
  by_order_[next_order_++] = number;
  newest_ = number;
}

std::optional<Slab::Slot> Slab::find(std::uint64_t offset) {
  const auto found = chunks_.find(offset / chunk_);
  if (found == chunks_.end()) return std::nullopt;
  Chunk& chunk = found->second;
  const std::uint64_t within = offset - chunk.offset;
  if (within / page >= chunk.next_page) return std::nullopt;
  const std::uint32_t index = chunk.span_of_page[within / page];
  const Span& span = chunk.spans[index];
  const std::uint64_t of_span = within - span.first_page * page;
  if (of_span % span.object != 0 || of_span / span.object >= span.slots) return std::nullopt;
  const auto slot = static_cast<std::uint32_t>(of_span / span.object);
  if ((chunk.slots[span.first_slot + slot] & in_use) == 0) return std::nullopt;
  return Slot{.chunk = &chunk, .span = index, .slot = slot};
}

std::optional<Slab::Released> Slab::release(std::uint64_t offset) {
  const auto found = find(offset);
  if (!found) return std::nullopt;
  Chunk& chunk = *found->chunk;
  Span& span = chunk.spans[found->span];
  std::uint16_t& entry = chunk.slots[span.first_slot + found->slot];
  const Released released{.bytes = (entry & ~in_use) * std::uint64_t{64}, .emptied = chunk.used == 1};
  entry = span.free;
  span.free = static_cast<std::uint16_t>(found->slot);
  if (span.used-- == span.slots) with_room_[span.object].emplace(chunk.order, found->span);
  --chunk.used;
  return released;
}

void Slab::remove_chunk(std::uint64_t offset) {
  const auto found = chunks_.find(offset / chunk_);
  VEDETTE_ASSERT(found != chunks_.end() && found->second.used == 0);
  const Chunk& chunk = found->second;
  for (std::uint32_t s = 0; s < chunk.spans.size(); ++s) with_room_[chunk.spans[s].object].erase({chunk.order, s});
  by_order_.erase(chunk.order);
  if (newest_ == found->first) newest_.reset();
  chunks_.erase(found);
}

}  // namespace vedette
