// Frames moved by mremap, faults by SIGSEGV: needs no privilege and no userfaultfd, so it works in every container. A
// chunk that is away is PROT_NONE; a thread that touches it enters our signal handler and sleeps until the chunk is
// shown. System calls get EFAULT there.
//
//                  parking(f)                        chunk
//   parked         pages, RW                         empty, PROT_NONE
//   show           empty, RW          <-- mremap --  pages, RW; then the gate opens
//   hide           pages, made RW     -- mremap -->  made PROT_NONE first, then emptied: no thread reads zeros
//
// Pages that the program has pinned itself move as in remap_memory.cc.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "base/assert.h"
#include "os/chunk_memory.h"
#include "os/gate.h"
#include "os/parking.h"
#include "os/remap.h"
#include "os/uffd.h"

namespace vedette {
namespace {

class SignalMemory final : public ChunkMemory, private Faults, private Trackable {
 public:
  SignalMemory(const Layout& layout, Mapping parking, std::unique_ptr<Gate> gate)
      : layout_(layout),
        parking_(std::move(parking)),
        used_(parking_.data(), layout.budget_bytes()),
        gate_(std::move(gate)) {}

  std::uint32_t made() const noexcept override { return layout_.made(); }
  std::uint32_t most_frames() const noexcept override { return std::min(layout_.frames(), most_frames_by_mappings()); }
  int make(FrameIndex first, std::uint32_t count, FrameKind) noexcept override {
    const std::size_t end = (first.value + std::size_t{count}) * layout_.chunk_bytes();
    if (const int error = used_.grow(end, [](std::size_t) { return 0; }); error != 0) return error;
    return fill(parked(first), count * layout_.chunk_bytes(), layout_.node(), layout_.pages());
  }
  void give_back(FrameIndex frame) noexcept override {
    if (clear_entries(parked(frame), layout_.chunk_bytes()) != 0) die("a frame cannot be given back (madvise)");
  }
  void show(FrameIndex frame, ChunkIndex chunk) noexcept override { put(parked(frame), chunk); }
  bool hide(ChunkIndex chunk, FrameIndex frame) noexcept override { return take(chunk, parked(frame)), true; }
  bool lend(std::byte* memory, ChunkIndex chunk) noexcept override {
    if (lent_ == most_lent_) return false;
    put(memory, chunk);
    ++lent_;
    return true;
  }
  bool take_back(ChunkIndex chunk, std::byte* memory) noexcept override {
    take(chunk, memory);
    --lent_;
    return true;
  }
  bool shift(ChunkIndex from, ChunkIndex to, FrameIndex) noexcept override {
    gate_->close(from);
    protect(layout_.chunk(from), PROT_NONE);
    remap_pages(layout_.chunk(from), layout_.chunk(to), layout_.chunk_bytes());
    protect(layout_.chunk(to), PROT_READ | PROT_WRITE);
    gate_->open(to);
    return true;
  }
  void wake(ChunkIndex chunk) noexcept override { gate_->ask_again(chunk); }

  std::byte* parked(FrameIndex frame) const noexcept override { return parking_.data() + layout_.offset(frame); }
  Result<void> allows(FrameKind kind) const override {
    if (kind == FrameKind::fast || kind == FrameKind::unregistered) return {};
    return Error{.cause = Cause::unavailable,
                 .message =
                     "shared memory as fast memory, which this tracker watches, needs userfaultfd; allow it, or track "
                     "with mprotect"};
  }
  // no frame is registered
  Result<void> convert(FrameIndex, std::optional<ChunkIndex>, FrameKind kind, bool) override { return allows(kind); }
  void expect_writes(std::byte*, std::size_t) noexcept override {}
  Reach reach() const noexcept override { return {.system_calls = false, .keeps_buffers = true, .lends = true}; }
  Faults* faults() noexcept override { return this; }
  Trackable* trackable() noexcept override { return this; }
  std::string_view mechanism() const noexcept override { return "PROT_NONE and SIGSEGV, mremap"; }

 private:
  void put(std::byte* memory, ChunkIndex chunk) noexcept {
    remap_pages(memory, layout_.chunk(chunk), layout_.chunk_bytes());
    gate_->open(chunk);
  }
  void take(ChunkIndex chunk, std::byte* memory) noexcept {
    gate_->close(chunk);
    protect(layout_.chunk(chunk), PROT_NONE);
    remap_pages(layout_.chunk(chunk), memory, layout_.chunk_bytes());
    protect(memory, PROT_READ | PROT_WRITE);
  }
  void protect(std::byte* begin, int protection) const noexcept {
    if (::mprotect(begin, layout_.chunk_bytes(), protection) == 0) return;
    die("mprotect of a chunk failed; too many mappings (vm.max_map_count)");
  }

  Layout layout_;
  Mapping parking_;
  UsedPart used_;  // of it
  std::unique_ptr<Gate> gate_;
  const std::uint32_t most_lent_ = most_loans_by_mappings(most_frames());
  std::uint32_t lent_ = 0;  // chunks
};

}  // namespace

Result<std::unique_ptr<ChunkMemory>> open_signal_memory(ChunkMemoryOptions options) {
  assert_sane(options);
  if (auto room = enough_mappings(options); !room) return room.error();
  if (auto able = can_remap(options.chunk_bytes); !able) return able.error();
  auto parking = open_parking(options, Layout(options).made());
  if (!parking) return parking.error();
  const Layout layout(options);
  if (auto advised = advise(layout.arena(), layout.arena_bytes(), options.chunk_bytes); !advised)
    return advised.error();
  if (auto preferred = prefer(layout.arena(), layout.arena_bytes(), options.node); !preferred) return preferred.error();
  auto gate = Gate::make(layout, std::move(options.on_fault));
  if (!gate) return gate.error();
  if (::mprotect(layout.arena(), layout.arena_bytes(), PROT_NONE) != 0) {
    return system_error("mprotect of the arena", errno, "raise vm.max_map_count");
  }
  return std::unique_ptr<ChunkMemory>(std::make_unique<SignalMemory>(layout, std::move(*parking), std::move(*gate)));
}

}  // namespace vedette
