// Frames moved by mremap, for kernels with userfaultfd but without UFFDIO_MOVE, and for I/O through registered buffers: the
// physical pages of a frame never change, so a registration of parked(frame) stays good wherever the frame is shown.
//
// MREMAP_DONTUNMAP takes the pages and leaves the mapping they came from behind, empty, in one step under the lock of the
// address space. So neither side is ever a hole that another thread's mmap could land in:
//
//                  parking(f)                        chunk
//   parked         pages                             empty, registered for missing pages: a touch waits
//   show           empty placeholder  <-- mremap --  pages; then registered (mremap drops the registration of what it moves)
//   hide           pages              -- mremap -->  empty; still registered, for the mapping itself stayed
//
// While a frame is shown its parking address holds an empty mapping that nobody may touch: I/O through registered buffers names
// that address but reaches the pages.
//
// Unlike UFFDIO_MOVE, mremap does not wait for pages that a system call of the program has pinned: an O_DIRECT read that the
// program itself started goes on writing into the frame after it is hidden. Memory used so must be kept resident.
#include "base/assert.h"
#include "os/chunk_memory.h"
#include "os/parking.h"
#include "os/uffd.h"

#include <sys/mman.h>

#include "os/remap.h"

namespace vedette {
namespace {

class RemapMemory final : public ChunkMemory {
 public:
  RemapMemory(ChunkMemoryOptions options, Userfaultfd userfaultfd, Mapping parking)
      : layout_(options), on_fault_(std::move(options.on_fault)), userfaultfd_(std::move(userfaultfd)),
        parking_(std::move(parking)),
        reader_(userfaultfd_.fd(), [this](const MissingPage& missing) { return serve(missing); }) {}

  void show(FrameIndex frame, ChunkIndex chunk) noexcept override { bring(parked(frame), chunk); }
  void hide(ChunkIndex chunk, FrameIndex frame) noexcept override {
    remap_pages(layout_.chunk(chunk), parked(frame), layout_.chunk_bytes());
  }
  void shift(ChunkIndex from, ChunkIndex to, FrameIndex) noexcept override { bring(layout_.chunk(from), to); }
  void wake(ChunkIndex chunk) noexcept override { userfaultfd_.wake(layout_.chunk(chunk), layout_.chunk_bytes()); }

  std::byte* parked(FrameIndex frame) const noexcept override { return parking_.data() + layout_.offset(frame); }
  bool registrable() const noexcept override { return true; }
  bool serves_system_calls() const noexcept override { return userfaultfd_.serves_system_calls(); }
  std::string_view mechanism() const noexcept override {
    return userfaultfd_.serves_system_calls() ? "userfaultfd, mremap" : "userfaultfd (user mode only), mremap";
  }

 private:
  void bring(std::byte* source, ChunkIndex chunk) noexcept {
    std::byte* const target = layout_.chunk(chunk);
    remap_pages(source, target, layout_.chunk_bytes());
    // Every page is there: nothing can be missing until the next hide, which finds the range registered.
    if (userfaultfd_.register_missing(target, layout_.chunk_bytes()) != 0) {
      die("userfaultfd: a chunk cannot be registered again; too many mappings (vm.max_map_count)");
    }
    // Who waits is in the kernel's list by address, which the exchange of the mapping did not change.
    wake(chunk);
  }
  bool serve(const MissingPage& missing) {
    const auto fault = layout_.fault(missing.page, missing.write);
    if (!fault) return false;
    on_fault_(*fault);
    return true;
  }

  Layout layout_;
  FaultSink on_fault_;
  Userfaultfd userfaultfd_;
  Mapping parking_;
  FaultReader reader_;               // last: it stops before anything it uses goes
};

}  // namespace

Result<std::unique_ptr<ChunkMemory>> open_remap_memory(ChunkMemoryOptions options) {
  assert_sane(options);
  if (auto room = enough_mappings(options); !room) return room.error();
  auto userfaultfd = Userfaultfd::open(0);
  if (!userfaultfd) return userfaultfd.error();
  auto parking = open_parking(options, true);
  if (!parking) return parking.error();
  const Layout layout(options);
  if (auto advised = advise(layout.arena(), layout.arena_bytes(), options.chunk_bytes); !advised) return advised.error();
  if (const int error = userfaultfd->register_missing(layout.arena(), layout.arena_bytes()); error != 0) {
    return system_error("userfaultfd, registering the arena", error, "the arena must be private anonymous memory");
  }
  if (auto able = can_remap(options.chunk_bytes); !able) return able.error();
  return std::unique_ptr<ChunkMemory>(
      std::make_unique<RemapMemory>(std::move(options), std::move(*userfaultfd), std::move(*parking)));
}

}  // namespace vedette
