// Frames moved by UFFDIO_MOVE: the page tables' entries travel between the parking range and the arena, no mapping is
// ever changed. Two mappings for the life of the memory, each registered once: no hole, no lost registration, no map
// count limit, and no exclusive lock of the address space while a chunk moves.
//
// Both ranges are registered for missing pages: the kernel demands it of the target of a move, and the parking range is
// a target when a chunk goes away. The first frames are filled before that; later ones are filled at places that are
// kept for it, and moved in. So no mapping changes: two threads that fill would stop each other at the lock of the
// address space, for as long as a thread that holds it waits for a processor.
//
// The arena asks for huge pages too: without that a fault in an away chunk would leave an empty table of small pages
// behind, and the huge page that moves in next would be split.
#include <algorithm>
#include <cerrno>
#include <mutex>
#include <optional>
#include <vector>

#include "base/assert.h"
#include "os/chunk_memory.h"
#include "os/uapi.h"
#include "os/uffd_memory.h"

namespace vedette {
namespace {

// Places where memory is filled before it moves to where it is needed: addresses of their own, empty while they wait.
// As many as threads fill at a time. Any thread.
class Fillers {
 public:
  Fillers(Bytes chunk, std::optional<NodeIndex> node) : chunk_(chunk), node_(node) {}

  std::uint64_t bytes() const noexcept { return std::max(chunk_.value, least_bytes); }
  std::optional<Mapping> take() noexcept {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        Mapping place = std::move(free_.back());
        free_.pop_back();
        return place;
      }
    }
    auto made = Mapping::reserve({bytes()}, {std::max<std::uint64_t>(chunk_.value, huge_page_bytes)});
    if (!made || !advise(made->data(), bytes(), chunk_) || !prefer(made->data(), bytes(), node_)) return std::nullopt;
    return std::move(*made);
  }
  void give(Mapping place) noexcept {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(place));
  }

 private:
  static constexpr std::uint64_t least_bytes = std::uint64_t{16} << 20;
  const Bytes chunk_;
  const std::optional<NodeIndex> node_;
  std::mutex mutex_;
  std::vector<Mapping> free_;
};

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
  // Lent memory is registered until its pages are back: it is their target then, and the kernel leaves it alone. Of
  // other memory that wants huge pages it makes one where some pages are missing, and fills in zeros (khugepaged).
  bool lend_fast(std::byte* memory, ChunkIndex chunk) noexcept override {
    if (lent_ == most_lent) return false;
    if (userfaultfd_.register_missing(memory, layout_.chunk_bytes()) != 0) return false;
    userfaultfd_.move(layout_.chunk(chunk), memory, layout_.chunk_bytes());
    ++lent_;
    return true;
  }
  bool take_back_fast(ChunkIndex chunk, std::byte* memory) noexcept override {
    if (!userfaultfd_.try_move(memory, layout_.chunk(chunk), layout_.chunk_bytes())) return false;
    if (userfaultfd_.unregister(memory, layout_.chunk_bytes()) != 0)
      die("userfaultfd: the registration of lent memory cannot end; too many mappings (vm.max_map_count)");
    --lent_;
    return true;
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
  // Parking is registered: a first touch of it would be a fault to serve. So memory is filled elsewhere and moved in.
  int allocate_fast(FrameIndex first, std::uint32_t count) noexcept override {
    auto place = fillers_.take();
    if (!place) return ENOMEM;
    const std::size_t bytes = count * layout_.chunk_bytes(), most = fillers_.bytes();
    int error = 0;
    for (std::size_t done = 0; done < bytes && error == 0; done += most) {
      const std::size_t piece = std::min(most, bytes - done);
      error = fill(place->data(), piece, layout_.node(), layout_.pages());
      if (error == 0) userfaultfd_.move(parked_fast(first) + done, place->data(), piece);
      if (error != 0 && done > 0) clear_entries(parked_fast(first), done);
    }
    fillers_.give(std::move(*place));
    return error;
  }

  // Each may cut two mappings, of which the kernel allows 65,530 by default (vm.max_map_count).
  static constexpr std::uint32_t most_lent = 16'000;
  std::uint32_t lent_ = 0;  // chunks
  Fillers fillers_{Bytes{layout_.chunk_bytes()}, layout_.node()};
};

}  // namespace

Result<std::unique_ptr<UffdMemory>> make_move_memory(ChunkMemoryOptions options, bool fill) {
  assert_sane(options);
  auto userfaultfd = Userfaultfd::open(uapi::feature_move, FileFrames::features);
  if (!userfaultfd) return userfaultfd.error();
  auto parking = open_parking(options, fill ? Layout(options).made() : 0);
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
