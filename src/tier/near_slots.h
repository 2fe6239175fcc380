// The books of a layered store: which of its slots has a place in the near store, and whether the far store has the
// same bytes.
//
//   free -> dirty -> clean -> free        a near slot: nothing, the only newest bytes, bytes that the far store has too
//
// What always holds: a near slot belongs to one slot, or to none and is free or has transfers in flight. `dirty` and
// `clean` list the near slots that have an owner, the one used longest ago first. Clean ones are room.
//
// Pure: no thread, clock, address or store. The layered store's thread rule guards it.
#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "base/indexed.h"
#include "tier/store.h"

namespace vedette {

using NearIndex = Index<struct NearTag>;

class NearSlots {
 public:
  explicit NearSlots(std::uint32_t most);

  // Near slots [0, room) may be used. Returns one past the highest that is in use, below which room cannot be.
  std::uint32_t set_room(std::uint32_t room);
  // More slots are dirty than leave the spare ones free, when so many of them have left.
  bool crowded(std::uint32_t leaving) const noexcept;

  std::optional<NearIndex> near_of(SlotIndex slot) const noexcept;
  bool far_has(SlotIndex slot) const noexcept;  // its newest bytes
  SlotIndex owner(NearIndex near) const noexcept { return near_[near].owner; }

  // A near slot for new bytes of `slot`: its own, a free one, or the clean one used longest ago. None: no room, and
  // nothing changed. A near slot with transfers in flight is passed over.
  std::optional<NearIndex> give(SlotIndex slot);
  void leave_near(SlotIndex slot);  // its bytes are no longer near
  void forget(SlotIndex slot);      // its bytes are nowhere
  void forget_from(SlotIndex first);
  void set_far(SlotIndex slot, bool has);
  void use(NearIndex near);  // now
  bool busy(NearIndex near) const noexcept { return near_[near].in_flight > 0; }
  void begin_io(NearIndex near);
  void end_io(NearIndex near);
  // The dirty one used longest ago that has no transfer in flight.
  std::optional<NearIndex> coldest() const noexcept;

 private:
  enum class State : std::uint8_t { free, dirty, clean, orphan };  // orphan: no owner, transfers in flight
  struct Near {
    State state = State::free;
    SlotIndex owner;
    std::uint32_t in_flight = 0;
    NearIndex before, after;  // in its list
  };
  struct Place {
    bool near = false, far = false;
    NearIndex at;
  };
  struct List {  // its head is a place of near_ beyond the last slot
    NearIndex head;
    std::uint32_t count = 0;
  };
  Place& place_of(SlotIndex slot);
  List* list_of(State state) noexcept;
  void become(NearIndex near, State next);
  std::optional<NearIndex> first_idle(const List& list) const noexcept;

  const std::uint32_t most_;
  std::uint32_t room_ = 0;
  Indexed<NearIndex, Near> near_;
  std::vector<Place> places_;  // by slot
  std::set<NearIndex> free_;   // below room_; the lowest is taken first, so that the near store can shrink
  List dirty_, clean_;
};

}  // namespace vedette
