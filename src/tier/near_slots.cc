#include "tier/near_slots.h"

#include <algorithm>

#include "base/assert.h"

namespace vedette {

NearSlots::NearSlots(std::uint32_t most)
    : most_(most), near_(std::size_t{most} + 2), dirty_{.head = {most}}, clean_{.head = {most + 1}} {
  for (const List& list : {dirty_, clean_}) near_[list.head].before = near_[list.head].after = list.head;
}

std::uint32_t NearSlots::set_room(std::uint32_t room) {
  std::uint32_t limit = std::min(room_, most_);
  while (limit > 0 && near_[{limit - 1}].state == State::free) --limit;
  const std::uint32_t wanted = std::max(std::min(room, most_), limit);
  free_.erase(free_.lower_bound({wanted}), free_.end());
  for (std::uint32_t near = room_; near < wanted; ++near) free_.insert({near});
  room_ = wanted;
  return limit;
}

bool NearSlots::crowded(std::uint32_t leaving) const noexcept {
  return room_ > 0 && dirty_.count + std::min(room_, spare_near_slots(room_)) > room_ + leaving;
}

NearSlots::Place& NearSlots::place_of(SlotIndex slot) {
  if (slot.value >= places_.size())
    places_.resize(std::max<std::size_t>(slot.value + std::size_t{1}, places_.size() * 2));
  return places_[slot.value];
}

std::optional<NearIndex> NearSlots::near_of(SlotIndex slot) const noexcept {
  if (slot.value >= places_.size() || !places_[slot.value].near) return std::nullopt;
  return places_[slot.value].at;
}

bool NearSlots::far_has(SlotIndex slot) const noexcept {
  return slot.value < places_.size() && places_[slot.value].far;
}

NearSlots::List* NearSlots::list_of(State state) noexcept {
  return state == State::dirty ? &dirty_ : state == State::clean ? &clean_ : nullptr;
}

void NearSlots::become(NearIndex index, State next) {
  Near& near = near_[index];
  if (List* const left = list_of(near.state)) {
    near_[near.before].after = near.after;
    near_[near.after].before = near.before;
    --left->count;
  }
  if (List* const joined = list_of(next)) {  // at its end: used just now
    near.before = near_[joined->head].before;
    near.after = joined->head;
    near_[near.before].after = near_[joined->head].before = index;
    ++joined->count;
  }
  near.state = next;
  if (next == State::free && index.value < room_) free_.insert(index);
}

std::optional<NearIndex> NearSlots::first_idle(const List& list) const noexcept {
  for (NearIndex at = near_[list.head].after; at != list.head; at = near_[at].after)
    if (near_[at].in_flight == 0) return at;
  return std::nullopt;
}

std::optional<NearIndex> NearSlots::coldest() const noexcept { return first_idle(dirty_); }

std::optional<NearIndex> NearSlots::give(SlotIndex slot) {
  Place& place = place_of(slot);
  if (place.near && near_[place.at].in_flight == 0) {
    set_far(slot, false);
    return place.at;
  }
  std::optional<NearIndex> chosen;
  if (!free_.empty()) {
    chosen = *free_.begin();
    free_.erase(free_.begin());
  } else if (const auto cold = first_idle(clean_)) {
    leave_near(near_[*cold].owner);
    free_.erase(*cold);
    chosen = cold;
  } else {
    return std::nullopt;
  }
  leave_near(slot);
  place.far = false;
  place.near = true;
  place.at = *chosen;
  near_[*chosen].owner = slot;
  become(*chosen, State::dirty);
  return chosen;
}

void NearSlots::leave_near(SlotIndex slot) {
  Place& place = place_of(slot);
  if (!place.near) return;
  place.near = false;
  become(place.at, near_[place.at].in_flight > 0 ? State::orphan : State::free);
}

void NearSlots::forget(SlotIndex slot) {
  leave_near(slot);
  place_of(slot).far = false;
}

void NearSlots::forget_from(SlotIndex first) {
  for (SlotIndex slot = first; slot.value < places_.size(); ++slot.value) forget(slot);
}

void NearSlots::set_far(SlotIndex slot, bool has) {
  Place& place = place_of(slot);
  place.far = has;
  if (place.near) become(place.at, has ? State::clean : State::dirty);
}

void NearSlots::use(NearIndex index) { become(index, near_[index].state); }

void NearSlots::begin_io(NearIndex index) { ++near_[index].in_flight; }

void NearSlots::end_io(NearIndex index) {
  Near& near = near_[index];
  VEDETTE_ASSERT(near.in_flight > 0);
  if (--near.in_flight == 0 && near.state == State::orphan) become(index, State::free);
}

}  // namespace vedette
