// The layout of a step's temporaries, such that the move of one does not drag another. It is Sentinel's co-allocation,
// for chunks instead of pages (HPCA'21, "co-allocating tensors with similar lifetime and memory access frequency into
// the same pages").
//
// Tensors that fill their chunks live alone. The others are packed into shared regions, the longest-lived first. Each
// goes where it adds the least chunk-time (chunks times the time for which they must be kept), and only where it saves
// a chunk for at least half its life. So gradients lie end to end, and scratch takes the room beside them. Regions and
// lone tensors then get addresses, last in first out by size, so that a tensor is born where one of its size has just
// died and the memory is still resident.
//
// Pure, deterministic. O(n * open regions), at most `most_open_regions` of them.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "vedette/units.h"

namespace vedette {

struct Lifetime {
  Bytes bytes;
  Span<std::uint32_t> life;  // event numbers, unique over all births and deaths; sorted by begin in the input
};

struct Placement {
  std::vector<std::uint64_t> offset;  // offset[i] of lifetimes[i], from the zone's first byte; a multiple of 4096
  std::uint64_t zone_bytes = 0;       // a multiple of the chunk
};

Placement coallocate(std::span<const Lifetime> lifetimes, Bytes chunk);

}  // namespace vedette
