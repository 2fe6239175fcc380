// Frames moved by UFFDIO_MOVE: the page tables' entries travel between the parking range and the arena, no mapping is
// ever changed. Two mappings for the life of the memory, each registered once: no hole, no lost registration, no map
// count limit, and no exclusive lock of the address space while a chunk moves.
//
// Both ranges are registered for missing pages: the kernel demands it of the target of a move, and the parking range is
// a target when a chunk goes away. Parking is filled before it is registered: a first touch after that would be a fault
// to serve.
//
// The arena asks for huge pages too: without that a fault in an away chunk would leave an empty table of small pages
// behind, and the huge page that moves in next would be split.
#include "base/assert.h"
#include "os/chunk_memory.h"
#include "os/uapi.h"
#include "os/uffd_memory.h"

namespace vedette {
namespace {

class MoveMemory final : public UffdMemory {
 public:
  MoveMemory(ChunkMemoryOptions options, Userfaultfd userfaultfd, Mapping parking)
      : UffdMemory(std::move(options), std::move(userfaultfd), std::move(parking)) {}
  ~MoveMemory() override { stop_reader(); }

  std::string_view mechanism() const noexcept override {
    return userfaultfd_.serves_system_calls() ? "userfaultfd, UFFDIO_MOVE"
                                              : "userfaultfd (user mode only), UFFDIO_MOVE";
  }

 private:
  bool keeps_buffers() const noexcept override { return false; }  // the kernel refuses to move pinned pages
  void show_fast(FrameIndex frame, ChunkIndex chunk) noexcept override {
    userfaultfd_.move(layout_.chunk(chunk), parked_fast(frame), layout_.chunk_bytes());
  }
  bool hide_fast(ChunkIndex chunk, FrameIndex frame) noexcept override {
    return userfaultfd_.try_move(parked_fast(frame), layout_.chunk(chunk), layout_.chunk_bytes());
  }
  bool shift_fast(ChunkIndex from, ChunkIndex to, FrameIndex) noexcept override {
    return userfaultfd_.try_move(layout_.chunk(to), layout_.chunk(from), layout_.chunk_bytes());
  }
  // UFFDIO_MOVE refuses the file's mapping as a target, so this once the mapping itself moves.
  void show_over_file(FrameIndex frame, ChunkIndex chunk) noexcept override {
    std::byte* const source = parked_fast(frame);
    const std::size_t bytes = layout_.chunk_bytes();
    const bool open = userfaultfd_.unregister(source, bytes) == 0;
    if (open) replace(source, chunk);
    if (!open || userfaultfd_.register_missing(source, bytes) != 0) {
      die("userfaultfd: a frame cannot be registered again; too many mappings (vm.max_map_count)");
    }
  }
  // Parking is registered, so new memory is touched elsewhere and moved in.
  int allocate_fast(FrameIndex frame) noexcept override {
    const Bytes bytes{layout_.chunk_bytes()};
    auto fresh = Mapping::reserve(bytes, bytes);
    if (!fresh || !advise(fresh->data(), bytes.value, bytes)) return ENOMEM;
    if (const int error = populate(fresh->data(), bytes.value); error != 0) return error;
    userfaultfd_.move(parked_fast(frame), fresh->data(), bytes.value);
    return 0;
  }
};

}  // namespace

Result<std::unique_ptr<UffdMemory>> make_move_memory(ChunkMemoryOptions options, bool fill) {
  assert_sane(options);
  auto userfaultfd = Userfaultfd::open(uapi::feature_move, FileFrames::features);
  if (!userfaultfd) return userfaultfd.error();
  auto parking = open_parking(options, fill);
  if (!parking) return parking.error();
  if (auto registered = register_arena(options, *userfaultfd); !registered) return registered.error();
  if (const int error = userfaultfd->register_missing(parking->data(), Layout(options).frame_bytes()); error != 0) {
    return system_error("userfaultfd, registering fast memory", error, "");
  }
  return std::unique_ptr<UffdMemory>(
      std::make_unique<MoveMemory>(std::move(options), std::move(*userfaultfd), std::move(*parking)));
}

Result<std::unique_ptr<ChunkMemory>> open_move_memory(ChunkMemoryOptions options) {
  auto memory = make_move_memory(std::move(options), true);
  if (!memory) return memory.error();
  return std::unique_ptr<ChunkMemory>(std::move(*memory));
}

}  // namespace vedette
