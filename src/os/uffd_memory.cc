#include "os/uffd_memory.h"

#include <cerrno>
#include <cstring>
#include <sys/mman.h>

#include "base/assert.h"
#include "os/remap.h"

namespace vedette {
namespace {

Error no_memory_for_a_copy(int error) {
  return system_error("memory for one frame more, while a frame changes its kind", error, "choose a smaller budget or free memory");
}

}  // namespace

UffdMemory::UffdMemory(ChunkMemoryOptions options, Userfaultfd userfaultfd, Mapping parking)
    : layout_(options), userfaultfd_(std::move(userfaultfd)), on_fault_(std::move(options.on_fault)),
      parking_(std::move(parking)), kinds_(options.frames, FrameKind::fast), file_mapped_(options.chunks, 0),
      reader_(std::make_unique<FaultReader>(userfaultfd_, [this](const MissingPage& missing) { return serve(missing); })) {}

void UffdMemory::show(FrameIndex frame, ChunkIndex chunk) noexcept {
  std::uint8_t& file_mapped = file_mapped_[chunk.value];
  if (kinds_[frame.value] == FrameKind::trackable) {
    files_->show(frame, layout_.chunk(chunk));
    file_mapped = 1;
  } else if (file_mapped != 0) {
    show_over_file(frame, chunk);
    file_mapped = 0;
  } else {
    show_fast(frame, chunk);
  }
}

void UffdMemory::hide(ChunkIndex chunk, FrameIndex frame) noexcept {
  if (kinds_[frame.value] == FrameKind::trackable) {
    files_->hide(layout_.chunk(chunk));
  } else {
    hide_fast(chunk, frame);
  }
}

void UffdMemory::shift(ChunkIndex from, ChunkIndex to, FrameIndex frame) noexcept {
  if (kinds_[frame.value] == FrameKind::trackable) {
    hide(from, frame);
    show(frame, to);
  } else if (file_mapped_[to.value] != 0) {
    hide(from, frame);
    show(frame, to);
  } else {
    shift_fast(from, to, frame);
  }
}

void UffdMemory::wake(ChunkIndex chunk) noexcept { userfaultfd_.wake(layout_.chunk(chunk), layout_.chunk_bytes()); }

std::byte* UffdMemory::parked(FrameIndex frame) const noexcept {
  return kinds_[frame.value] == FrameKind::trackable ? files_->parked(frame) : parked_fast(frame);
}

void UffdMemory::replace(std::byte* source, ChunkIndex chunk) noexcept {
  std::byte* const target = layout_.chunk(chunk);
  remap_pages(source, target, layout_.chunk_bytes());
  // Every page is there: nothing can be missing until the next hide, which finds the range registered.
  if (userfaultfd_.register_missing(target, layout_.chunk_bytes()) != 0) {
    die("userfaultfd: a chunk cannot be registered again; too many mappings (vm.max_map_count)");
  }
  // Who waits is in the kernel's list by address, which the exchange of the mapping did not change.
  wake(chunk);
}

bool UffdMemory::serve(const MissingPage& missing) {
  const auto fault = layout_.fault(missing.page, missing.write);
  if (!fault) return false;
  on_fault_(*fault);
  return true;
}

Result<FileFrames*> UffdMemory::files() {
  if (!files_) {
    auto opened = FileFrames::open(layout_, userfaultfd_);
    if (!opened) return opened.error();
    files_ = std::move(*opened);
  }
  return files_.get();
}

Result<void> UffdMemory::start_trackable() {
  auto ready = files();
  if (!ready) return ready.error();
  for (std::uint32_t i = 0; i < layout_.frames(); ++i) {
    if (const int error = files_->allocate({i}); error != 0) {
      return system_error("allocating fast memory", error, "choose a smaller budget or free memory");
    }
    kinds_[i] = FrameKind::trackable;
  }
  return {};
}

Result<void> UffdMemory::convert(FrameIndex frame, std::optional<ChunkIndex> shown_at, FrameKind kind, bool keep_bytes) {
  VEDETTE_ASSERT(frame.value < layout_.frames() && (keep_bytes || !shown_at));
  if (kinds_[frame.value] == kind) return {};
  return kind == FrameKind::trackable ? make_trackable(frame, shown_at, keep_bytes) : make_fast(frame, shown_at, keep_bytes);
}

void UffdMemory::expect_writes(std::byte* begin, std::size_t bytes) noexcept {
  const auto at = layout_.fault(begin, true);
  if (at && file_mapped_[at->chunk.value] != 0) userfaultfd_.write_unprotect(begin, bytes);  // a refusal costs a fault a page
}

// 1. away   2. copy   3. give the old memory back   4. show again
// Without bytes to keep the old memory goes first, so that the new is made of it: memory that lies free for seconds a hypervisor
// may take back, and then filling 2 MiB takes 4 ms instead of 0.2 (measured, free page reporting).
Result<void> UffdMemory::make_trackable(FrameIndex frame, std::optional<ChunkIndex> shown_at, bool keep_bytes) {
  auto ready = files();
  if (!ready) return ready.error();
  if (shown_at) hide(*shown_at, frame);
  if (!keep_bytes) give_fast_back(frame);
  if (const int error = keep_bytes ? files_->allocate(frame, parked_fast(frame)) : files_->allocate(frame); error != 0) {
    if (!keep_bytes && allocate_fast(frame) != 0) die("the system has no memory left for a frame that changes its kind");
    if (shown_at) show(frame, *shown_at);
    return no_memory_for_a_copy(error);
  }
  if (keep_bytes) give_fast_back(frame);
  kinds_[frame.value] = FrameKind::trackable;
  if (shown_at) show(frame, *shown_at);
  return {};
}

Result<void> UffdMemory::make_fast(FrameIndex frame, std::optional<ChunkIndex> shown_at, bool keep_bytes) {
  if (!keep_bytes) files_->release(frame);
  if (const int error = allocate_fast(frame); error != 0) {
    if (!keep_bytes && files_->allocate(frame) != 0) die("the system has no memory left for a frame that changes its kind");
    return no_memory_for_a_copy(error);
  }
  if (shown_at) hide(*shown_at, frame);
  if (keep_bytes) {
    files_->read(frame, parked_fast(frame));
    files_->release(frame);
  }
  kinds_[frame.value] = FrameKind::fast;
  if (shown_at) show(frame, *shown_at);
  return {};
}

void UffdMemory::give_fast_back(FrameIndex frame) noexcept {
  if (::madvise(parked_fast(frame), layout_.chunk_bytes(), MADV_DONTNEED) != 0) die("a frame cannot be given back (madvise)");
}

Result<void> register_arena(const ChunkMemoryOptions& options, const Userfaultfd& userfaultfd) {
  const Layout layout(options);
  if (auto advised = advise(layout.arena(), layout.arena_bytes(), options.chunk_bytes); !advised) return advised;
  if (const int error = userfaultfd.register_missing(layout.arena(), layout.arena_bytes()); error != 0) {
    return system_error("userfaultfd, registering the arena", error, "the arena must be private anonymous memory");
  }
  return {};
}

}  // namespace vedette
