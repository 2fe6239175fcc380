// What stands in front of libtorch's CUDA allocator, in a library of its own: it alone needs a libtorch for CUDA, and a
// program loads it when its guard is one of GPU memory. All decisions are made by who loads it.
//
// Thread rule: install once; the hooks are called from any thread, for as long as the process lives.
#pragma once
#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "vedette/gpu.h"

namespace vedette::adapter {

class CudaHooks {
 public:
  virtual ~CudaHooks() = default;
  // A DataPtr without a context leaves the allocation to libtorch's own allocator. May throw c10::Error.
  virtual c10::DataPtr allocate(std::size_t bytes) = 0;
  // Work queued on `stream` (a CUstream) uses the memory. False: the memory is libtorch's own.
  virtual bool record_stream(const c10::DataPtr& memory, void* stream) = 0;
  // What a guard holds of the first GPU's memory; nothing where none lives.
  struct Held {
    struct Block {
      std::uint64_t address = 0, bytes = 0;
    };
    GpuMemory::Range memory;
    std::vector<Block> blocks;  // those in place, in the order of their addresses
  };
  virtual std::optional<Held> held(bool with_blocks) = 0;
};

}  // namespace vedette::adapter

extern "C" {
// Returns libtorch's own allocator, which is for ever. `hooks` live for ever, too.
c10::Allocator* vedette_cuda_install(vedette::adapter::CudaHooks* hooks);
}
