// A memory whose frames are all trackable from birth, over whichever way of moving the kernel has for fast ones, so
// that its frames can become fast when the tracking ends.
#include "os/chunk_memory.h"
#include "os/uffd_memory.h"

namespace vedette {

Result<std::unique_ptr<ChunkMemory>> open_file_memory(ChunkMemoryOptions options) {
  auto memory = make_move_memory(options, false);
  if (!memory) memory = make_remap_memory(std::move(options), false);
  if (!memory) return memory.error();
  if (auto started = (*memory)->start_trackable(); !started) return started.error();
  return std::unique_ptr<ChunkMemory>(std::move(*memory));
}

}  // namespace vedette
