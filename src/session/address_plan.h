// Addresses for a step's temporaries: a zone of whole chunks in which they lie so that chunks are shared by tensors of
// like lifetimes. The n-th allocation of a size gets the address that the n-th one got in the profile's layout.
//
// What always holds: addresses of tensors that live at the same time in the profiled step are disjoint. A step may
// differ from the profile, so an address is given out only where no tensor lives (Arena::room_at).
//
// Lock rule: not thread safe; the session's lock guards it.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "pack/units.h"
#include "session/arena.h"

namespace vedette::detail {

class AddressPlan {
 public:
  AddressPlan() = default;
  // Reserves a zone of the arena and moves the log's temporaries into it; `events`: of the step. Where the
  // arena has no room, every tensor keeps the address it was profiled at, and none is given out.
  // `use`: whether tensors of like lifetimes share chunks there. Those born by event `settled` stay where they are.
  AddressPlan(StepLog& log, std::uint32_t events, Arena& arena, Bytes chunk, Heap::Chunks use = Heap::Chunks::shared,
              std::uint32_t settled = 0);

  struct Address {
    std::uint64_t offset = 0;
    bool in_zone = false;  // else the tensor outlives its step, and the plan has it where it was profiled
  };
  // Of the n-th allocation of a size in a step; nullopt: it is allocated as if there were no plan.
  std::optional<Address> nth(std::uint64_t bytes, std::uint32_t n) const;
  void give_back(Arena& arena) const {  // the zone, of which no address is given out any more
    if (zone_bytes_ > 0) arena.release_zone(zone_, zone_bytes_);
  }
  std::uint64_t zone() const noexcept { return zone_; }
  std::uint64_t zone_bytes() const noexcept { return zone_bytes_; }

 private:
  std::map<std::uint64_t, std::vector<Address>> addresses_;  // by bytes, in order of birth
  std::uint64_t zone_ = 0, zone_bytes_ = 0;
};

}  // namespace vedette::detail
