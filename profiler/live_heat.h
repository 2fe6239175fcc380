// The bytes that live in a step, from hot to cold: by the time since each tensor's last use, at each of a few places of
// the step.
//
// Thread rule: values.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

#include "vedette/model.h"

namespace vedette {

// Bin b < 7: used within 1/128, 1/64 .. 1/2 of the step's time, and not within half of that; the last: longer ago.
inline constexpr std::size_t heat_bins = 8;
using HeatBytes = std::array<std::uint64_t, heat_bins>;

class LiveHeat {
 public:
  static constexpr std::size_t places = 32;  // of equal numbers of ops
  LiveHeat() = default;
  explicit LiveHeat(const Trace& step);  // O(accesses + places x tensors)

  std::size_t place_of(std::uint32_t op) const noexcept {
    return ops_ == 0 ? 0 : std::min<std::size_t>(places - 1, std::size_t{op} * places / ops_);
  }
  bool empty() const noexcept { return ops_ == 0; }
  const HeatBytes& at(std::size_t place) const noexcept { return bytes_[place]; }

 private:
  std::size_t ops_ = 0;
  std::array<HeatBytes, places> bytes_{};
};

struct ForTop {                               // beside the counters
  LiveHeat heat;                              // of the step profiled last
  std::size_t heat_place = LiveHeat::places;  // shown last
};

}  // namespace vedette
