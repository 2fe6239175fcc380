// mremap with MREMAP_DONTUNMAP, as the memories that use it need it.
#pragma once
#include <cstddef>
#include <cstdint>

#include "os/chunk_memory.h"
#include "vedette/result.h"

namespace vedette {

// Moves the pages and the mapping of [source, source + bytes) over [target, target + bytes), which loses its own;
// `source` stays mapped, empty, with its protection and registration. Dies with a sentence where the kernel refuses.
void remap_pages(std::byte* source, std::byte* target, std::size_t bytes) noexcept;

// Cause::unavailable where the kernel cannot (Linux < 5.7).
Result<void> can_remap(Bytes chunk_bytes);

// Every shown chunk and every frame is a mapping of its own: vm.max_map_count must hold those of the budget. Reserves a
// quarter for the program.
Result<void> enough_mappings(const ChunkMemoryOptions&);
std::uint32_t most_frames_by_mappings() noexcept;
// Chunks that may show lent memory beside so many frames: each takes as many mappings.
std::uint32_t most_loans_by_mappings(std::uint32_t frames) noexcept;

}  // namespace vedette
