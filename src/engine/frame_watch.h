// Who follows page by page what the program touches hears from the engine when a chunk can be touched and when it no
// longer can.
//
// Thread rule: any thread, one call at a time, under the engine's lock: implementations call no engine, and return
// soon.
#pragma once
#include <cstdint>

namespace vedette {

class FrameWatch {
 public:
  virtual ~FrameWatch() = default;
  // The chunk has a frame now; `held`: it stays until somebody lets go of it (the slab, memory that system calls use).
  virtual void shown(std::uint32_t chunk, bool held) noexcept = 0;
  virtual void hiding(std::uint32_t chunk) noexcept = 0;  // its frame leaves right after this call
  virtual void faulted(std::uint32_t chunk, std::uint64_t page,
                       bool write) noexcept = 0;  // touched while away; page of the chunk
};

}  // namespace vedette
