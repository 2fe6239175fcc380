// The engine tells a page profile when the program can touch a chunk, and when it no longer can.
//
// Thread rule: any thread, one call at a time, under the engine's lock: implementations call no engine, and return
// soon.
#pragma once
#include <cstdint>

#include "os/chunk_index.h"

namespace vedette {

class FrameWatch {
 public:
  virtual ~FrameWatch() = default;
  // The chunk has a frame now; `held`: it stays until its hold ends (the slab, memory that system calls use).
  virtual void shown(ChunkIndex chunk, bool held) noexcept = 0;
  virtual void hiding(ChunkIndex chunk) noexcept = 0;  // its frame leaves right after this call
  // touched while away; page of the chunk
  virtual void faulted(ChunkIndex chunk, std::uint64_t page, bool write) noexcept = 0;
};

}  // namespace vedette
