// A budget of GPU memory in front of libtorch's CUDA allocator: storages that are used least recently leave for pinned
// host memory, and come back when an operator is announced with them. Built where libtorch is one for CUDA, as a
// library of its own that a program loads when it trains on a GPU.
//
// A storage's pointer is what changes, for every view of it at once; one that is away is null. A storage leaves only
// once an operator was seen with it. Not yet: a plan, CUDA graphs, more than one GPU, copy-on-write storages, storages
// whose pointer a program keeps across operators.
//
// Thread rule: open once, before tensors that shall count; the rest on any thread.
#pragma once
#include <cstdint>

extern "C" {

struct VedetteGpuCounters {
  std::uint64_t evictions, fetches, evicted_bytes, fetched_bytes, most_live_bytes, most_in_use_bytes;
};

// Allocations below `small` bytes stay with libtorch's own allocator, outside of the budget. Returns nullptr, or a
// sentence that lives for ever.
const char* vedette_gpu_open(std::uint64_t budget, std::uint64_t small);
VedetteGpuCounters vedette_gpu_counters();

}  // extern "C"
