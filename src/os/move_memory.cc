// Frames moved by UFFDIO_MOVE: the page tables' entries travel between the parking range and the arena, no mapping is ever
// changed. Two mappings for the life of the memory, each registered once: no hole, no lost registration, no map count limit,
// and no exclusive lock of the address space while a chunk moves.
//
// Both ranges are registered for missing pages: the kernel demands it of the target of a move, and the parking range is a
// target when a chunk goes away. Parking is filled before it is registered: a first touch after that would be a fault to serve.
//
// The arena asks for huge pages too: without that a fault in an away chunk would leave an empty table of small pages behind,
// and the huge page that moves in next would be split.
#include "base/assert.h"
#include "os/chunk_memory.h"
#include "os/parking.h"
#include "os/uapi.h"
#include "os/uffd.h"

namespace vedette {
namespace {

class MoveMemory final : public ChunkMemory {
 public:
  MoveMemory(ChunkMemoryOptions options, Userfaultfd userfaultfd, Mapping parking)
      : layout_(options), on_fault_(std::move(options.on_fault)), userfaultfd_(std::move(userfaultfd)),
        parking_(std::move(parking)),
        reader_(userfaultfd_.fd(), [this](const MissingPage& missing) { return serve(missing); }) {}

  void show(FrameIndex frame, ChunkIndex chunk) noexcept override {
    userfaultfd_.move(layout_.chunk(chunk), parked(frame), layout_.chunk_bytes());
  }
  void hide(ChunkIndex chunk, FrameIndex frame) noexcept override {
    userfaultfd_.move(parked(frame), layout_.chunk(chunk), layout_.chunk_bytes());
  }
  void shift(ChunkIndex from, ChunkIndex to, FrameIndex) noexcept override {
    userfaultfd_.move(layout_.chunk(to), layout_.chunk(from), layout_.chunk_bytes());
  }
  void wake(ChunkIndex chunk) noexcept override { userfaultfd_.wake(layout_.chunk(chunk), layout_.chunk_bytes()); }

  std::byte* parked(FrameIndex frame) const noexcept override { return parking_.data() + layout_.offset(frame); }
  bool registrable() const noexcept override { return false; }  // the kernel refuses to move pinned pages
  bool serves_system_calls() const noexcept override { return userfaultfd_.serves_system_calls(); }
  std::string_view mechanism() const noexcept override {
    return userfaultfd_.serves_system_calls() ? "userfaultfd, UFFDIO_MOVE" : "userfaultfd (user mode only), UFFDIO_MOVE";
  }

 private:
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

Result<std::unique_ptr<ChunkMemory>> open_move_memory(ChunkMemoryOptions options) {
  assert_sane(options);
  auto userfaultfd = Userfaultfd::open(uapi::feature_move);
  if (!userfaultfd) return userfaultfd.error();
  auto parking = open_parking(options, true);
  if (!parking) return parking.error();
  const Layout layout(options);
  if (auto advised = advise(layout.arena(), layout.arena_bytes(), options.chunk_bytes); !advised) return advised.error();
  for (const auto& [begin, bytes] : {std::pair{layout.arena(), layout.arena_bytes()},
                                     std::pair{parking->data(), layout.frame_bytes()}}) {
    if (const int error = userfaultfd->register_missing(begin, bytes); error != 0) {
      return system_error("userfaultfd, registering the arena", error, "the arena must be private anonymous memory");
    }
  }
  return std::unique_ptr<ChunkMemory>(
      std::make_unique<MoveMemory>(std::move(options), std::move(*userfaultfd), std::move(*parking)));
}

}  // namespace vedette
