// The common part of memories with userfaultfd: the arena's registration, the thread that reads faults, and the kinds
// of frames. Fast frames are private anonymous memory with huge pages; the derived class moves them. Unregistered
// frames are the same without a registration. Trackable frames are pages of a file (file_frames.h).
//
// A chunk's mapping follows the frame that was shown there last: the file's after a trackable frame, else anonymous.
// In both a thread that touches a chunk that is away waits.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "os/chunk_memory.h"
#include "os/file_frames.h"
#include "os/parking.h"
#include "os/uffd.h"

namespace vedette {

class UffdMemory : public ChunkMemory, private Faults, private Trackable {
 public:
  std::uint32_t made() const noexcept final { return layout_.made(); }
  std::uint32_t most_frames() const noexcept override { return layout_.frames(); }
  int make(FrameIndex first, std::uint32_t count, FrameKind kind) noexcept final;
  void give_back(FrameIndex frame) noexcept final;
  void show(FrameIndex frame, ChunkIndex chunk) noexcept final;
  bool hide(ChunkIndex chunk, FrameIndex frame) noexcept final;
  bool shift(ChunkIndex from, ChunkIndex to, FrameIndex frame) noexcept final;
  bool lend(std::byte* memory, ChunkIndex chunk) noexcept final {
    return mapped_[chunk.value] == Mapped::anonymous && lend_fast(memory, chunk);
  }
  bool take_back(ChunkIndex chunk, std::byte* memory) noexcept final { return take_back_fast(chunk, memory); }
  void wake(ChunkIndex chunk) noexcept final;
  void restore(const Fault& fault, std::optional<FrameIndex> frame) noexcept final;
  Result<void> allows(FrameKind kind) const final;
  std::byte* parked(FrameIndex frame) const noexcept final;
  Result<void> convert(FrameIndex frame, std::optional<ChunkIndex> shown_at, FrameKind kind, bool keep_bytes) final;
  void expect_writes(std::byte* begin, std::size_t bytes) noexcept final;
  Reach reach() const noexcept final {
    return {.system_calls = userfaultfd_.serves_system_calls(), .keeps_buffers = keeps_buffers(), .lends = true};
  }
  Faults* faults() noexcept final { return this; }
  Trackable* trackable() noexcept final { return this; }

  // Frames are trackable from birth, instead of fast: makes the first ones. Once, before anything is shown.
  Result<void> start_trackable();

 protected:
  // `options` as given; `parking` is filled, or is left empty for start_trackable().
  UffdMemory(ChunkMemoryOptions options, Userfaultfd userfaultfd, Mapping parking);
  // Every derived class calls this in its destructor: a fault that was read late is still told to the sink, which may
  // show(), and that is only possible while the derived class is there.
  void stop_reader() noexcept { reader_.reset(); }

  virtual bool keeps_buffers() const noexcept = 0;                          // of Reach
  virtual void show_fast(FrameIndex frame, ChunkIndex chunk) noexcept = 0;  // the chunk's mapping is anonymous
  virtual bool hide_fast(ChunkIndex chunk, FrameIndex frame) noexcept = 0;
  virtual bool shift_fast(ChunkIndex from, ChunkIndex to, FrameIndex frame) noexcept = 0;
  virtual bool lend_fast(std::byte* memory, ChunkIndex chunk) noexcept = 0;
  virtual bool take_back_fast(ChunkIndex chunk, std::byte* memory) noexcept = 0;
  virtual void show_over_file(FrameIndex frame, ChunkIndex chunk) noexcept = 0;  // the chunk's mapping is the file's
  // At parked_fast(first) and behind it; 0 or an errno.
  virtual int allocate_fast(FrameIndex first, std::uint32_t count) noexcept = 0;

  std::byte* parked_fast(FrameIndex frame) const noexcept { return parking_.data() + layout_.offset(frame); }
  // Moves the mapping at `source` over the chunk by mremap, whatever is mapped there, and registers it. `source` must
  // not be registered: mremap copies the registration and joins the copy to matching neighbours of the chunk. Then it
  // drops the registration of the whole, so that the neighbours read as zeros (Linux 6.18, met by the tests).
  void replace(std::byte* source, ChunkIndex chunk) noexcept;

  Layout layout_;
  Userfaultfd userfaultfd_;

 private:
  bool serve(const MissingPage& missing);
  Result<FileFrames*> files();
  Result<void> make_trackable(FrameIndex frame, std::optional<ChunkIndex> shown_at, bool keep_bytes);
  void make_alone_or_fast(FrameIndex frame, std::optional<ChunkIndex> shown_at, FrameKind kind) noexcept;
  Result<void> make_fast(FrameIndex frame, std::optional<ChunkIndex> shown_at, bool keep_bytes);

  void give_fast_back(FrameIndex frame) noexcept;
  void hide_patiently(ChunkIndex chunk, FrameIndex frame) noexcept;  // waits for transfers that have pinned it
  void let_go(ChunkIndex chunk) noexcept;  // of its registration, while a frame is shown there
  void take_hold(ChunkIndex chunk) noexcept;

  enum class Mapped : std::uint8_t { anonymous, file };

  FaultSink on_fault_;
  Mapping parking_;
  UsedPart used_;  // of parking_
  std::unique_ptr<FileFrames> files_;
  std::vector<FrameKind> kinds_;  // of each frame; make() and the caller's lock never write the same one
  std::vector<Mapped> mapped_;    // of each chunk
  std::unique_ptr<FaultReader> reader_;
};

// The arena's registration, the same for all.
Result<void> register_arena(const ChunkMemoryOptions&, const Userfaultfd&);

// As the public ones; without `fill` parking is empty, and start_trackable() makes the first frames.
Result<std::unique_ptr<UffdMemory>> make_move_memory(ChunkMemoryOptions, bool fill);
Result<std::unique_ptr<UffdMemory>> make_remap_memory(ChunkMemoryOptions, bool fill);

}  // namespace vedette
