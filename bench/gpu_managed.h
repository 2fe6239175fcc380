// libtorch's CUDA tensors in managed memory: what a program does that leaves moves to the driver, for a cell of
// bench/gpu_table. In a library of its own, which alone needs a libtorch for CUDA.
//
// libtorch's caching allocator takes its segments from cudaMallocManaged; the preferred location is the device. Each
// op of a step that does what the step before did records an event; a second stream waits for it and prefetches what
// the op will use that comes 16 announcements later. What was used by one of the 16 before is not asked for.
//
// Thread rule: all from the training thread; ops may run in any thread.
#pragma once
#include <cstdint>

namespace vedette::bench {

class ManagedMemory {
 public:
  struct Counts {
    std::uint64_t prefetches = 0, prefetched_bytes = 0, refused = 0, segment_bytes = 0;
  };
  virtual ~ManagedMemory() = default;
  // Allocates what is free on the device but `bytes`, for ever. Returns how much that was. Throws std::runtime_error.
  virtual std::uint64_t leave_free(std::uint64_t bytes) = 0;
  virtual void begin_step() = 0;
  virtual Counts counts() const = 0;
};

}  // namespace vedette::bench

extern "C" {
// From now on, and for ever, allocations of the first GPU are managed memory. Once a process, before any allocation.
// Throws std::runtime_error with a sentence where the device has no managed memory that it takes page by page.
vedette::bench::ManagedMemory* gpu_table_use_managed_memory();
}
