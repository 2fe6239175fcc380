// What an allocator that does not know the future makes of the same lives: the best fit of a pool as NVIDIA's CnMem has it, the baseline of
// SmartPool (arXiv 1903.06631). Sizes are rounded up to 512 bytes; the smallest hole that is wide enough is split; neighbours that are free
// become one; the pool grows at its end when no hole is wide enough. What is away leaves its bytes and may come back elsewhere.
//
// Pure, deterministic; any thread. O(n log n).
#pragma once
#include "pack/buffers.h"

namespace vedette::pack {

Bytes online_pool_peak(const Problem& problem);

}  // namespace vedette::pack
