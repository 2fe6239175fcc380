// Copies to slower memory whose places are not free yet: how long may each have its place to itself?
//
// Pure, deterministic; any thread. O(moments + copies).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "vedette/units.h"

namespace vedette::detail {

struct CopyOut {
  Span<std::uint32_t> moments;  // of a step: it begins, it has ended; begin > end: in the next step
  Bytes bytes;
};

// By copy, the moment from which its place is free: that of its end, or an earlier one where the resident tensors
// (`resident`, by moment) and the places of copies would take more than `room`. There the oldest copies, which end
// first, give up their places. The same in each of many equal steps.
std::vector<std::uint32_t> ends_within(std::span<const CopyOut> copies, std::span<const Bytes> resident, Bytes room);

}  // namespace vedette::detail
