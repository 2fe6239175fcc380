// How frames become visible at chunks of the arena. A frame is chunk-sized physical memory that stays allocated from
// make() to give_back(); a chunk is a chunk-sized piece of the arena's addresses. A frame with memory is either parked
// (reachable by I/O at parked(f), invisible to the program) or shown at exactly one chunk. A chunk without a frame is
// away: a thread that touches it waits until the engine shows a frame there.
//
// What always holds, in every implementation: going away is atomic. At every instant a load or store of the chunk by
// any thread either reaches the frame, or waits; it never sees zeros, a foreign byte, an unmapped hole or a torn copy.
// After hide() returns the frame's bytes can change through parked(f) alone.
//
// In-flight transfers: UFFDIO_MOVE refuses pages that the program itself has pinned (an O_DIRECT read(2) into the chunk
// is still running, or the memory is registered for I/O). hide() and shift() then return false and change nothing. The
// other mechanisms move such pages, so memory that they manage is to be kept resident during such a transfer.
//
// fork: a child has neither arena nor frames (MADV_DONTFORK); touching them there is SIGSEGV, never zeros, never shared
// pages.
//
// The end: a ChunkMemory lives as long as the arena is used. Its destructor stops the fault thread and leaves the arena
// mapped: chunks that are shown keep their bytes, chunks that are away are no longer guarded, parked frames are gone.
//
// Thread rule: show, hide and shift may be called from several threads at once for different chunks and frames.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "os/chunk_index.h"
#include "os/node_memory.h"
#include "vedette/result.h"
#include "vedette/units.h"

namespace vedette {

struct Fault {  // an access of a chunk that is away
  ChunkIndex chunk;
  std::uint64_t page = 0;  // of the chunk, 4 KiB each
  bool write = false;
  const std::byte* address = nullptr;  // at least to the page
};

// Gets every fault, from a thread that belongs to the ChunkMemory. It must not touch the arena; it brings the chunk by
// show(), now or later, from any thread; or calls wake() if the chunk is already shown. The same fault may come twice.
using FaultSink = std::function<void(const Fault&)>;

struct ChunkMemoryOptions {
  std::byte* arena = nullptr;  // aligned to chunk_bytes, reserved by Mapping, with no other mapping inside
  std::uint32_t chunks = 0;
  std::uint32_t frames = 0;                      // at most
  std::optional<std::uint32_t> made;             // so many of them have memory from the start; nullopt: all
  std::optional<std::uint32_t> budget;           // for so many there must be free memory; nullopt: for all
  Bytes chunk_bytes = {std::uint64_t{2} << 20};  // a power of two, a multiple of 4 KiB
  std::optional<NodeIndex> node = std::nullopt;  // whose memory frames are made of; nullopt: of any
  FaultSink on_fault;
};

enum class FrameKind : std::uint8_t {
  fast,  // private anonymous memory, huge pages where the chunk size allows
  // pages of a memfd, 4 KiB each, registered as the zap tracker needs them, and armed when shown; slower to move
  trackable,
  // as fast, but registered with no userfaultfd while shown; a page tracker may replace its physical pages
  unregistered,
};

// The answers in which mechanisms differ. The CPU reads and writes the frames of all of them, at parked() too.
struct Reach {
  bool system_calls = false;   // a system call waits where a chunk is away; else it fails with EFAULT
  bool keeps_buffers = false;  // frames that are registered for I/O can still move
  bool lends = false;          // lend() and take_back() work
};

// Threads that wait for a chunk.
class Faults {
 public:
  virtual ~Faults() = default;
  // After a fault of a chunk that is shown, or in which no tensor lives: threads that wait there try again, and fault
  // again where the chunk is away.
  virtual void wake(ChunkIndex chunk) noexcept = 0;
  // The same for a chunk that is shown and does not move meanwhile: a page that the program has discarded (madvise)
  // holds zeros then, else its threads would fault for ever. `frame`: nullopt where memory is lent.
  virtual void restore(const Fault& fault, std::optional<FrameIndex> /*frame*/) noexcept { wake(fault.chunk); }
};

// Frames that become another kind of memory, so that a page tracker can watch them.
class Trackable {
 public:
  virtual ~Trackable() = default;
  // Whether frames may become of this kind here; the sentence names the missing feature.
  virtual Result<void> allows(FrameKind kind) const = 0;
  // Copies the frame into memory of another kind, in place: same index, same bytes, same chunk if it is shown at one.
  // Threads that touch the chunk meanwhile wait; their faults may reach the sink, to be answered by wake() or not at
  // all. The old memory is given back before the call returns, so the budget is exceeded by one frame at a time.
  // parked(frame) changes, and with it the buffers that I/O has registered. Frames of several kinds may live side by
  // side. About 0.3 ms for 2 MiB (`unregistered`: nothing is copied); calls for one frame at a time. Error: as
  // allows(), or no memory is left; then nothing has changed. A converted chunk is to be armed anew. keep_bytes false:
  // the frame is parked and its bytes are not needed, which spares the copy.
  virtual Result<void> convert(FrameIndex frame, std::optional<ChunkIndex> shown_at, FrameKind kind,
                               bool keep_bytes) = 0;
  // Whole pages of one trackable chunk that is shown, untouched since they were armed: their first access will be a
  // write, as of memory just allocated. The kernel then takes one fault for it instead of two. Elsewhere it does
  // nothing.
  virtual void expect_writes(std::byte* begin, std::size_t bytes) noexcept = 0;
};

class ChunkMemory {
 public:
  virtual ~ChunkMemory() = default;

  // Frames [0, made()) have memory since this was opened.
  virtual std::uint32_t made() const noexcept = 0;
  // Frames [0, most_frames()) may get memory: where each takes mappings, as many as the process may have.
  virtual std::uint32_t most_frames() const noexcept { return ~std::uint32_t{0}; }
  // Frames [first, first + count) without memory get some, of this kind; they are parked, with undefined bytes. 0, or
  // an errno and none of them has. May run beside every call that names other frames.
  virtual int make(FrameIndex first, std::uint32_t count, FrameKind kind) noexcept = 0;
  // A parked frame gives its memory back. May run beside every call that names other frames.
  virtual void give_back(FrameIndex frame) noexcept = 0;

  // parked -> shown; threads that wait for the chunk go on
  virtual void show(FrameIndex frame, ChunkIndex chunk) noexcept = 0;
  // shown -> parked, atomically. False: pages of the frame are pinned; nothing has changed.
  [[nodiscard]] virtual bool hide(ChunkIndex chunk, FrameIndex frame) noexcept = 0;
  // shown at `from` -> shown at `to`. False: as hide().
  [[nodiscard]] virtual bool shift(ChunkIndex from, ChunkIndex to, FrameIndex frame) noexcept = 0;
  // Memory that is no frame, chunk_bytes at `memory`, is shown at a chunk that is away: there it is used in place.
  // False: it cannot be; nothing has changed.
  [[nodiscard]] virtual bool lend(std::byte* /*memory*/, ChunkIndex) noexcept { return false; }
  // The end of that, atomic as hide(). False: its pages are pinned; nothing has changed.
  [[nodiscard]] virtual bool take_back(ChunkIndex, std::byte* /*memory*/) noexcept { return false; }
  // Where I/O reaches the frame while it is parked (in memories where a frame has a second, permanent address: always).
  virtual std::byte* parked(FrameIndex frame) const noexcept = 0;

  virtual Reach reach() const noexcept = 0;
  virtual Faults* faults() noexcept = 0;                    // nullptr: no access ever waits
  virtual Trackable* trackable() noexcept = 0;              // nullptr: frames have one kind
  virtual std::string_view mechanism() const noexcept = 0;  // "userfaultfd, UFFDIO_MOVE", for doctor and diagnostics
};

// Each makes the first frames, or says why not; a budget above the system's free memory is refused. All frames start
// parked. userfaultfd MISSING + UFFDIO_MOVE (Linux >= 6.8)
Result<std::unique_ptr<ChunkMemory>> open_move_memory(ChunkMemoryOptions);
// userfaultfd MISSING + mremap (Linux >= 5.7)
Result<std::unique_ptr<ChunkMemory>> open_remap_memory(ChunkMemoryOptions);
// PROT_NONE + SIGSEGV + mremap, no privileges
Result<std::unique_ptr<ChunkMemory>> open_signal_memory(ChunkMemoryOptions);
// all frames trackable from birth (Linux >= 6.7)
Result<std::unique_ptr<ChunkMemory>> open_file_memory(ChunkMemoryOptions);

// The best of the first three that passes a small behaviour test on this machine.
Result<std::unique_ptr<ChunkMemory>> open_best_memory(ChunkMemoryOptions);

}  // namespace vedette
