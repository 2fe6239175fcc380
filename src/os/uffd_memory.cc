#include "os/uffd_memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/assert.h"
#include "os/remap.h"
#include "os/uapi.h"

namespace vedette {
namespace {

Error no_memory_for_a_copy(int error) {
  return system_error("memory for one frame more, while a frame changes its kind", error,
                      "choose a smaller budget or free memory");
}

}  // namespace

UffdMemory::UffdMemory(ChunkMemoryOptions options, Userfaultfd userfaultfd, Mapping parking)
    : layout_(options),
      userfaultfd_(std::move(userfaultfd)),
      on_fault_(std::move(options.on_fault)),
      parking_(std::move(parking)),
      used_(parking_.data(), layout_.budget_bytes()),
      kinds_(options.frames, FrameKind::fast),
      mapped_(options.chunks, Mapped::anonymous),
      reader_(
          std::make_unique<FaultReader>(userfaultfd_, [this](const MissingPage& missing) { return serve(missing); })) {}

int UffdMemory::make(FrameIndex first, std::uint32_t count, FrameKind kind) noexcept {
  const std::size_t end = (first.value + std::size_t{count}) * layout_.chunk_bytes();
  if (const int error = used_.grow(end, [](std::size_t) { return 0; }); error != 0) return error;
  if (kind != FrameKind::trackable) {
    const int error = allocate_fast(first, count);
    if (error == 0) std::fill_n(kinds_.begin() + first.value, count, kind);
    return error;
  }
  VEDETTE_ASSERT(files_ != nullptr);  // frames that are trackable opened it
  for (std::uint32_t k = 0; k < count; ++k) {
    const int error = files_->allocate({first.value + k});
    while (error != 0 && k-- > 0) files_->release({first.value + k});
    if (error != 0) return error;
  }
  std::fill_n(kinds_.begin() + first.value, count, kind);
  return 0;
}

void UffdMemory::give_back(FrameIndex frame) noexcept {
  kinds_[frame.value] == FrameKind::trackable ? files_->release(frame) : give_fast_back(frame);
}

void UffdMemory::show(FrameIndex frame, ChunkIndex chunk) noexcept {
  Mapped& mapped = mapped_[chunk.value];
  const FrameKind kind = kinds_[frame.value];
  if (kind == FrameKind::trackable) {
    files_->show(frame, layout_.chunk(chunk));
    mapped = Mapped::file;
    return;
  }
  mapped == Mapped::anonymous ? show_fast(frame, chunk) : show_over_file(frame, chunk);
  mapped = Mapped::anonymous;
  if (kind == FrameKind::unregistered) let_go(chunk);
}

bool UffdMemory::hide(ChunkIndex chunk, FrameIndex frame) noexcept {
  const FrameKind kind = kinds_[frame.value];
  if (kind == FrameKind::trackable) {
    files_->hide(layout_.chunk(chunk));
    return true;
  }
  if (kind == FrameKind::unregistered) take_hold(chunk);
  const bool hidden = hide_fast(chunk, frame);
  if (!hidden && kind == FrameKind::unregistered) let_go(chunk);
  return hidden;
}

void UffdMemory::hide_patiently(ChunkIndex chunk, FrameIndex frame) noexcept {
  Patience patience;
  while (!hide(chunk, frame)) patience.pause();
}

// Every page is there: while the chunk is not registered, nothing can be missing.
void UffdMemory::let_go(ChunkIndex chunk) noexcept {
  if (userfaultfd_.unregister(layout_.chunk(chunk), layout_.chunk_bytes()) == 0) return;
  die("userfaultfd: the registration of a chunk cannot end; too many mappings (vm.max_map_count)");
}

void UffdMemory::take_hold(ChunkIndex chunk) noexcept {
  if (userfaultfd_.register_missing(layout_.chunk(chunk), layout_.chunk_bytes()) == 0) return;
  die("userfaultfd: a chunk cannot be registered again; too many mappings (vm.max_map_count)");
}

bool UffdMemory::shift(ChunkIndex from, ChunkIndex to, FrameIndex frame) noexcept {
  if (kinds_[frame.value] == FrameKind::fast && mapped_[to.value] == Mapped::anonymous)
    return shift_fast(from, to, frame);
  if (!hide(from, frame)) return false;
  show(frame, to);
  return true;
}

void UffdMemory::wake(ChunkIndex chunk) noexcept { userfaultfd_.wake(layout_.chunk(chunk), layout_.chunk_bytes()); }

std::byte* UffdMemory::parked(FrameIndex frame) const noexcept {
  return kinds_[frame.value] == FrameKind::trackable ? files_->parked(frame) : parked_fast(frame);
}

// Zeros are what MADV_DONTNEED promises of private memory, and what the kernel gives where chunks are PROT_NONE instead
// of registered: the same bytes with both. Of a late fault the page is there, and stays (EEXIST). A page that a tracker
// has taken away is missing, too, but no discard.
void UffdMemory::restore(const Fault& fault, std::optional<FrameIndex> frame) noexcept {
  if (!frame || kinds_[frame->value] != FrameKind::unregistered)
    userfaultfd_.fill_with_zeros(layout_.chunk(fault.chunk) + fault.page * 4096 / page_size * page_size);
  wake(fault.chunk);
}

void UffdMemory::replace(std::byte* source, ChunkIndex chunk) noexcept {
  std::byte* const target = layout_.chunk(chunk);
  remap_pages(source, target, layout_.chunk_bytes());
  // Every page is there: nothing can be missing until the next hide, which finds the range registered.
  if (userfaultfd_.register_missing(target, layout_.chunk_bytes()) != 0) {
    die("userfaultfd: a chunk cannot be registered again; too many mappings (vm.max_map_count)");
  }
  // Waiting threads are in the kernel's list by address, which the exchange of the mapping did not change.
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
  if (auto allowed = allows(FrameKind::trackable); !allowed) return allowed;
  auto ready = files();
  if (!ready) return ready.error();
  const int error = make({0}, made(), FrameKind::trackable);
  if (error == 0) return {};
  return system_error("allocating fast memory", error, "choose a smaller budget or free memory");
}

Result<void> UffdMemory::convert(FrameIndex frame, std::optional<ChunkIndex> shown_at, FrameKind kind,
                                 bool keep_bytes) {
  VEDETTE_ASSERT(frame.value < layout_.frames() && (keep_bytes || !shown_at));
  const FrameKind now = kinds_[frame.value];
  if (now == kind) return {};
  if (auto allowed = allows(kind); !allowed) return allowed;
  if (now != FrameKind::fast && kind != FrameKind::fast) {
    if (auto between = convert(frame, shown_at, FrameKind::fast, keep_bytes); !between) return between;
  }
  if (kind == FrameKind::trackable) return make_trackable(frame, shown_at, keep_bytes);
  if (kinds_[frame.value] == FrameKind::trackable) return make_fast(frame, shown_at, keep_bytes);
  make_alone_or_fast(frame, shown_at, kind);
  return {};
}

Result<void> UffdMemory::allows(FrameKind kind) const {
  if (kind != FrameKind::trackable || userfaultfd_.has(FileFrames::features)) return {};
  return Error{.cause = Cause::unavailable,
               .message =
                   "memory that the zap tracker can watch: userfaultfd lacks asynchronous write protection; "
                   "Linux 6.7 or later is needed"};
}

// The bytes stay where they are. Pages that a tracker has replaced are small: where the kernel can, they become a huge
// one again.
void UffdMemory::make_alone_or_fast(FrameIndex frame, std::optional<ChunkIndex> shown_at, FrameKind kind) noexcept {
  kinds_[frame.value] = kind;
  if (shown_at) kind == FrameKind::unregistered ? let_go(*shown_at) : take_hold(*shown_at);
  if (kind == FrameKind::fast && layout_.chunk_bytes() % huge_page_bytes == 0) {
    std::byte* const pages = shown_at ? layout_.chunk(*shown_at) : parked_fast(frame);
    ::madvise(pages, layout_.chunk_bytes(), uapi::madvise_collapse);  // a refusal costs time in later moves
  }
}

void UffdMemory::expect_writes(std::byte* begin, std::size_t bytes) noexcept {
  const auto at = layout_.fault(begin, true);
  // a refusal costs a fault a page
  if (at && mapped_[at->chunk.value] == Mapped::file) userfaultfd_.write_unprotect(begin, bytes);
}

// 1. away   2. copy   3. give the old memory back   4. show again.
// Without bytes to keep the old memory goes first, so that the new is made of it. A hypervisor may take memory back
// that lies free for seconds (free page reporting), and then filling 2 MiB takes 4 ms instead of 0.2 (measured).
Result<void> UffdMemory::make_trackable(FrameIndex frame, std::optional<ChunkIndex> shown_at, bool keep_bytes) {
  auto ready = files();
  if (!ready) return ready.error();
  if (shown_at) hide_patiently(*shown_at, frame);
  if (!keep_bytes) give_fast_back(frame);
  if (const int error = keep_bytes ? files_->allocate(frame, parked_fast(frame)) : files_->allocate(frame);
      error != 0) {
    if (!keep_bytes && allocate_fast(frame, 1) != 0)
      die("the system has no memory left for a frame that changes its kind");
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
  if (const int error = allocate_fast(frame, 1); error != 0) {
    if (!keep_bytes && files_->allocate(frame) != 0)
      die("the system has no memory left for a frame that changes its kind");
    return no_memory_for_a_copy(error);
  }
  if (shown_at) hide_patiently(*shown_at, frame);
  if (keep_bytes) {
    files_->read(frame, parked_fast(frame));
    files_->release(frame);
  }
  kinds_[frame.value] = FrameKind::fast;
  if (shown_at) show(frame, *shown_at);
  return {};
}

void UffdMemory::give_fast_back(FrameIndex frame) noexcept {
  if (clear_entries(parked_fast(frame), layout_.chunk_bytes()) != 0) die("a frame cannot be given back (madvise)");
}

Result<void> register_arena(const ChunkMemoryOptions& options, const Userfaultfd& userfaultfd) {
  const Layout layout(options);
  if (auto advised = advise(layout.arena(), layout.arena_bytes(), options.chunk_bytes); !advised) return advised;
  if (auto preferred = prefer(layout.arena(), layout.arena_bytes(), options.node); !preferred) return preferred;
  if (const int error = userfaultfd.register_missing(layout.arena(), layout.arena_bytes()); error != 0) {
    return system_error("userfaultfd, registering the arena", error, "the arena must be private anonymous memory");
  }
  return {};
}

}  // namespace vedette
