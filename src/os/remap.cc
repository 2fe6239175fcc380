#include "os/remap.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <string>

#include "base/architecture.h"
#include "base/assert.h"
#include "base/mapping.h"
#include "os/uffd.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4  // Linux 5.7
#endif

namespace vedette {
namespace {

constexpr int move_and_stay = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;

std::uint64_t max_map_count() {
  std::FILE* file = std::fopen("/proc/sys/vm/max_map_count", "re");
  if (file == nullptr) return 65'530;  // the kernel's default
  unsigned long long count = 0;
  const bool read = std::fscanf(file, "%llu", &count) == 1;
  std::fclose(file);
  return read ? count : 65'530;
}

}  // namespace

void remap_pages(std::byte* source, std::byte* target, std::size_t bytes) noexcept {
  if (::mremap(source, bytes, bytes, move_and_stay, target) == static_cast<void*>(target)) return;
  if (errno == ENOMEM) die("mremap: no memory for another mapping; raise vm.max_map_count");
  die("mremap of a chunk failed: the program has changed the mapping of the arena (mmap, munmap, mprotect, mremap)");
}

Result<void> can_remap(Bytes chunk_bytes) {
  auto probe = Mapping::reserve({2 * chunk_bytes.value}, {page_size});
  if (!probe) return probe.error();
  std::byte* const target = probe->data() + chunk_bytes.value;
  if (::mremap(probe->data(), chunk_bytes.value, chunk_bytes.value, move_and_stay, target) !=
      static_cast<void*>(target)) {
    Error error = system_error("mremap with MREMAP_DONTUNMAP", errno, "Linux 5.7 or later is needed");
    error.cause = Cause::unavailable;
    return error;
  }
  return {};
}

namespace {

// A frame splits at most its chunk out of the arena (3 mappings for 1) and its place out of parking (the same).
constexpr std::uint64_t mappings_of_a_frame = 4, other_mappings = 16;

}  // namespace

std::uint32_t most_frames_by_mappings() noexcept {
  const std::uint64_t limit = max_map_count(), ours = limit - limit / 4;
  return static_cast<std::uint32_t>((ours - std::min(ours, other_mappings)) / mappings_of_a_frame);
}

std::uint32_t most_loans_by_mappings(std::uint32_t frames) noexcept {
  return most_frames_by_mappings() - std::min(frames, most_frames_by_mappings());
}

Result<void> enough_mappings(const ChunkMemoryOptions& options) {
  const std::uint32_t frames = options.budget.value_or(options.frames);
  const std::uint64_t needed = mappings_of_a_frame * frames + other_mappings, limit = max_map_count();
  if (frames <= most_frames_by_mappings()) return {};
  return Error{.cause = Cause::unsupported,
               .message = std::to_string(frames) + " frames may need " + std::to_string(needed) +
                          " mappings, the limit is " + std::to_string(limit) +
                          "; raise vm.max_map_count or the chunk size"};
}

}  // namespace vedette
