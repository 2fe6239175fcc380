// Where frames wait: chunk-sized physical memory at addresses of its own. And the small facts about the options of a
// ChunkMemory that every implementation checks and uses.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "base/architecture.h"
#include "base/mapping.h"
#include "os/chunk_memory.h"
#include "vedette/result.h"

namespace vedette {

// Reserves parking for the frames, that of the budget with access, and fills that of the first `made`: with huge pages
// where a chunk is a whole number of them, else with small ones. Error: less memory is free than the budget takes.
Result<Mapping> open_parking(const ChunkMemoryOptions&, std::uint32_t made);

// The first part of a range of frames is used; the rest has no access, so that mlockall() fills none of it. Any thread.
class UsedPart {
 public:
  UsedPart(std::byte* begin, std::size_t used) noexcept : begin_(begin), used_(used) {}
  // Of at least so many bytes from now on; 0 or an errno. `before`: called once where it grows, with the new size.
  template <class Before>
  int grow(std::size_t bytes, Before before) noexcept {
    if (bytes <= used_.load(std::memory_order_acquire)) return 0;
    const std::lock_guard lock(mutex_);
    if (bytes <= used_.load(std::memory_order_relaxed)) return 0;
    int error = before(bytes);
    if (error == 0) error = allow_access(begin_, bytes);
    if (error == 0) used_.store(bytes, std::memory_order_release);
    return error;
  }

 private:
  static int allow_access(std::byte* begin, std::size_t bytes) noexcept;
  std::byte* const begin_;
  std::atomic<std::size_t> used_;
  std::mutex mutex_;
};

// Makes every page of the range present and writable. 0 or an errno.
int populate(std::byte* begin, std::size_t bytes) noexcept;
// The same of memory that holds nothing: after an error all of it is given back. With a node, which the range prefers,
// all of it is of the node; ENOMEM where that is full.
int fill(std::byte* begin, std::size_t bytes, std::optional<NodeIndex> node, Pages pages) noexcept;
// Whether this process may keep so much memory locked beside its locked memory (ulimit -l); nothing stays so.
bool may_lock(std::byte* begin, std::size_t bytes) noexcept;
// Clears page-table entries (MADV_DONTNEED), of locked pages too: private memory is lost, a file's stays in the file. 0
// or an errno.
int clear_entries(std::byte* begin, std::size_t bytes) noexcept;

// Huge pages where the chunk size allows them; not inherited by fork: a child that touches the arena gets SIGSEGV,
// never zeros and never a copy that the budget does not know.
Result<void> advise(std::byte* begin, std::size_t bytes, Bytes chunk_bytes);

// The arena and parking prefer their node, where frames have one.
Result<void> prefer(std::byte* begin, std::size_t bytes, std::optional<NodeIndex> node);

// The program has promised all of this: aligned arena, power of two, a sink.
void assert_sane(const ChunkMemoryOptions&);

// The address ranges of a ChunkMemory, as arithmetic.
class Layout {
 public:
  explicit Layout(const ChunkMemoryOptions& options) noexcept
      : arena_(options.arena),
        chunk_bytes_(options.chunk_bytes.value),
        chunks_(options.chunks),
        frames_(options.frames),
        budget_(std::min(options.budget.value_or(options.frames), options.frames)),
        made_(std::min(options.made.value_or(options.frames), options.frames)),
        node_(options.node) {}

  std::size_t chunk_bytes() const noexcept { return chunk_bytes_; }
  std::size_t arena_bytes() const noexcept { return chunk_bytes_ * chunks_; }
  std::size_t frame_bytes() const noexcept { return chunk_bytes_ * frames_; }
  std::byte* arena() const noexcept { return arena_; }
  std::uint32_t chunks() const noexcept { return chunks_; }
  std::uint32_t frames() const noexcept { return frames_; }
  std::size_t budget_bytes() const noexcept { return chunk_bytes_ * budget_; }  // of frame_bytes(), from the start
  std::uint32_t made() const noexcept { return made_; }                         // have memory from the start
  std::optional<NodeIndex> node() const noexcept { return node_; }              // of the frames' memory
  Pages pages() const noexcept { return chunk_bytes_ % huge_page_bytes == 0 ? Pages::huge : Pages::small; }
  std::byte* chunk(ChunkIndex index) const noexcept;    // index < chunks
  std::size_t offset(FrameIndex index) const noexcept;  // index < frames; of the frame in parking
  std::optional<Fault> fault(const std::byte* page, bool write) const noexcept;  // nullopt: not in the arena

 private:
  std::byte* arena_;
  std::size_t chunk_bytes_;
  std::uint32_t chunks_, frames_, budget_, made_;
  std::optional<NodeIndex> node_;
};

}  // namespace vedette
