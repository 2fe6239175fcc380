// Frames moved by mremap, for kernels with userfaultfd but without UFFDIO_MOVE, and for I/O through registered buffers.
// The physical pages of a frame never change, so a registration of parked(frame) stays good wherever the frame is
// shown.
//
// MREMAP_DONTUNMAP takes the pages and leaves the mapping they came from behind, empty, in one step under the lock of
// the address space. So neither side is ever a hole that another thread's mmap could land in:
//
//                  parking(f)                        chunk
//   parked         pages                             empty, registered for missing pages: a touch waits
//   show           empty placeholder  <-- mremap --  pages; then registered, because mremap drops registrations
//   hide           pages              -- mremap -->  empty; still registered, for the mapping itself stayed
//
// While a frame is shown its parking address holds an empty mapping that no thread may touch: I/O through registered
// buffers names that address but reaches the pages.
//
// Unlike UFFDIO_MOVE, mremap does not wait for pages that a system call of the program has pinned: an O_DIRECT read
// that the program itself started goes on writing into the frame after it is hidden. Memory used so must be kept
// resident.
#include <algorithm>

#include "os/chunk_memory.h"
#include "os/remap.h"
#include "os/uffd_memory.h"

namespace vedette {
namespace {

class RemapMemory final : public UffdMemory {
 public:
  RemapMemory(ChunkMemoryOptions options, Userfaultfd userfaultfd, Mapping parking)
      : UffdMemory(std::move(options), std::move(userfaultfd), std::move(parking)) {}
  ~RemapMemory() override { stop_reader(); }

  std::uint32_t most_frames() const noexcept override { return std::min(layout_.frames(), most_frames_by_mappings()); }

  std::string_view mechanism() const noexcept override {
    return userfaultfd_.serves_system_calls() ? "userfaultfd, mremap" : "userfaultfd (user mode only), mremap";
  }

 private:
  bool keeps_buffers() const noexcept override { return true; }
  void show_fast(FrameIndex frame, ChunkIndex chunk) noexcept override { replace(parked_fast(frame), chunk); }
  bool hide_fast(ChunkIndex chunk, FrameIndex frame) noexcept override {
    remap_pages(layout_.chunk(chunk), parked_fast(frame), layout_.chunk_bytes());
    return true;
  }
  bool lend_fast(std::byte* memory, ChunkIndex chunk) noexcept override {
    if (lent_ == most_lent_) return false;
    replace(memory, chunk);
    ++lent_;
    return true;
  }
  bool take_back_fast(ChunkIndex chunk, std::byte* memory) noexcept override {
    remap_pages(layout_.chunk(chunk), memory, layout_.chunk_bytes());
    --lent_;
    return true;
  }
  // By way of parking, since replace() has a rule for registered sources.
  bool shift_fast(ChunkIndex from, ChunkIndex to, FrameIndex frame) noexcept override {
    hide_fast(from, frame);
    show_fast(frame, to);
    return true;
  }
  void show_over_file(FrameIndex frame, ChunkIndex chunk) noexcept override { show_fast(frame, chunk); }
  int allocate_fast(FrameIndex first, std::uint32_t count) noexcept override {
    return fill(parked_fast(first), count * layout_.chunk_bytes(), layout_.node(), layout_.pages());
  }

  const std::uint32_t most_lent_ = most_loans_by_mappings(most_frames());
  std::uint32_t lent_ = 0;  // chunks
};

}  // namespace

Result<std::unique_ptr<UffdMemory>> make_remap_memory(ChunkMemoryOptions options, bool fill) {
  assert_sane(options);
  if (auto room = enough_mappings(options); !room) return room.error();
  if (auto able = can_remap(options.chunk_bytes); !able) return able.error();
  auto userfaultfd = Userfaultfd::open(0, FileFrames::features);
  if (!userfaultfd) return userfaultfd.error();
  auto parking = open_parking(options, fill ? Layout(options).made() : 0);
  if (!parking) return parking.error();
  if (auto registered = register_arena(options, *userfaultfd); !registered) return registered.error();
  return std::unique_ptr<UffdMemory>(
      std::make_unique<RemapMemory>(std::move(options), std::move(*userfaultfd), std::move(*parking)));
}

Result<std::unique_ptr<ChunkMemory>> open_remap_memory(ChunkMemoryOptions options) {
  auto memory = make_remap_memory(std::move(options), true);
  if (!memory) return memory.error();
  return std::unique_ptr<ChunkMemory>(std::move(*memory));
}

}  // namespace vedette
