#include "os/parking.h"

#include <sys/mman.h>

#include <bit>
#include <cerrno>
#include <cstdio>
#include <string>

#include "base/assert.h"
#include "base/readable.h"
#include "os/uapi.h"
#include "os/uffd.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

namespace vedette {
namespace {

// Memory that the kernel could give without swapping, 0 when it does not say.
std::uint64_t available_bytes() {
  std::FILE* file = std::fopen("/proc/meminfo", "re");
  if (file == nullptr) return 0;
  char line[256];
  unsigned long long kib = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::sscanf(line, "MemAvailable: %llu kB", &kib) == 1) break;
  }
  std::fclose(file);
  return std::uint64_t{kib} << 10;
}

std::uint64_t available_bytes(std::optional<NodeIndex> node) {
  const auto room = node ? room_of_node(*node) : std::nullopt;
  return room ? std::min(available(*room).value, available_bytes()) : available_bytes();
}

Error too_little_memory(std::size_t bytes, std::optional<NodeIndex> node) {
  const std::string there = node ? of_node("", *node) : "";
  return Error{.cause = Cause::out_of_memory,
               .message = "fast memory" + there + " of " + readable_exactly({bytes}) + " cannot be allocated, " +
                          readable_exactly({available_bytes(node)}) + " are free" + (node ? " there" : "") +
                          "; choose a smaller budget or free memory",
               .errno_value = ENOMEM};
}

}  // namespace

int populate(std::byte* begin, std::size_t bytes) noexcept {
  while (::madvise(begin, bytes, MADV_POPULATE_WRITE) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno != EINVAL) return errno;
    // Linux < 5.14: one write a page does the same, of the byte that is there.
    for (std::size_t i = 0; i < bytes; i += page_size)
      __atomic_fetch_or(reinterpret_cast<unsigned char*>(begin + i), 0, __ATOMIC_RELAXED);
    return 0;
  }
  return 0;
}

int fill(std::byte* begin, std::size_t bytes, std::optional<NodeIndex> node, Pages pages) noexcept {
  int error = 0;
  if (node) {
    const Filled filled = fill_from_node(begin, {bytes}, *node, pages);
    error = filled.bytes.value == bytes ? 0 : filled.error != 0 ? filled.error : ENOMEM;
  } else {
    error = populate(begin, bytes);
  }
  if (error != 0) ::madvise(begin, bytes, MADV_DONTNEED);
  return error;
}

Result<void> prefer(std::byte* begin, std::size_t bytes, std::optional<NodeIndex> node) {
  return node ? prefer_node(begin, {bytes}, *node) : Result<void>();
}

bool may_lock(std::byte* begin, std::size_t bytes) noexcept {
  if (::mlock2(begin, bytes, MLOCK_ONFAULT) != 0) return false;
  return ::munlock(begin, bytes) == 0;
}

int clear_entries(std::byte* begin, std::size_t bytes) noexcept {
  if (::madvise(begin, bytes, MADV_DONTNEED) == 0) return 0;
  if (errno == EINVAL && ::madvise(begin, bytes, uapi::madvise_dontneed_locked) == 0) return 0;
  return errno;
}

Result<void> advise(std::byte* begin, std::size_t bytes, Bytes chunk_bytes) {
  const bool huge = chunk_bytes.value % huge_page_bytes == 0;
  // A kernel without huge pages answers EINVAL to both: its pages are small anyway.
  if (::madvise(begin, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) != 0 && errno != EINVAL) {
    return system_error("madvise of the arena, huge pages", errno, "raise vm.max_map_count");
  }
  if (::madvise(begin, bytes, MADV_DONTFORK) != 0) {
    return system_error("madvise of the arena, MADV_DONTFORK", errno, "raise vm.max_map_count");
  }
  return {};
}

Result<Mapping> open_parking(const ChunkMemoryOptions& options, std::uint32_t made) {
  const std::size_t bytes = Layout(options).frame_bytes(), budget = Layout(options).budget_bytes();
  if (const std::uint64_t available = available_bytes(options.node); available > 0 && budget > available)
    return too_little_memory(budget, options.node);
  const Bytes alignment{std::max<std::uint64_t>(options.chunk_bytes.value, huge_page_bytes)};
  auto parking = Mapping::reserve({bytes}, alignment);
  if (!parking) return parking.error();
  if (auto advised = advise(parking->data(), bytes, options.chunk_bytes); !advised) return advised.error();
  if (auto preferred = prefer(parking->data(), bytes, options.node); !preferred) return preferred.error();
  if (budget < bytes && ::mprotect(parking->data() + budget, bytes - budget, PROT_NONE) != 0)
    return system_error("mprotect of fast memory that may come", errno, "raise vm.max_map_count");
  if (made > 0) {
    const std::size_t first = made * options.chunk_bytes.value;
    if (const int error = fill(parking->data(), first, options.node, Layout(options).pages()); error != 0) {
      return error == ENOMEM ? too_little_memory(budget, options.node)
                             : system_error("allocating fast memory", error, "choose a smaller budget");
    }
  }
  return parking;
}

int UsedPart::allow_access(std::byte* begin, std::size_t bytes) noexcept {
  return ::mprotect(begin, bytes, PROT_READ | PROT_WRITE) == 0 ? 0 : errno;
}

void assert_sane(const ChunkMemoryOptions& options) {
  const std::uint64_t bytes = options.chunk_bytes.value;
  VEDETTE_ASSERT(std::has_single_bit(bytes) && bytes >= page_size);
  VEDETTE_ASSERT(options.arena != nullptr && reinterpret_cast<std::uintptr_t>(options.arena) % bytes == 0);
  VEDETTE_ASSERT(options.chunks > 0 && options.frames > 0);
  VEDETTE_ASSERT(options.on_fault != nullptr);
}

std::byte* Layout::chunk(ChunkIndex index) const noexcept {
  VEDETTE_ASSERT(index.value < chunks_);
  return arena_ + index.value * chunk_bytes_;
}

std::size_t Layout::offset(FrameIndex index) const noexcept {
  VEDETTE_ASSERT(index.value < frames_);
  return index.value * chunk_bytes_;
}

std::optional<Fault> Layout::fault(const std::byte* page, bool write) const noexcept {
  const auto offset = reinterpret_cast<std::uintptr_t>(page) - reinterpret_cast<std::uintptr_t>(arena_);
  if (offset >= arena_bytes()) return std::nullopt;
  return Fault{.chunk = {static_cast<std::uint32_t>(offset / chunk_bytes_)},
               .page = offset % chunk_bytes_ / page_size,
               .write = write,
               .address = page};
}

}  // namespace vedette
