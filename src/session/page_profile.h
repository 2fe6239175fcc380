// The profiling step, page by page: the pages of each tensor that an op or a layer touched, reads and writes apart.
// Source: Sentinel (HPCA'21, section 2.2), one tensor a page while profiling, accesses found through the page tables.
//
// A tick is an op, or a run of ops of one layer. At its end the pages of its announced tensors and of those born in it
// are looked at. Every living tensor is looked at as well, whenever that costs little beside the pages looked at since
// the last time. So an announced access is reported at its tick, an unannounced one at the first such look after it (in
// arenas of up to free_pages: at its tick, too). Pages of a tensor that dies, or of a chunk that leaves, are looked at
// before. How many unannounced accesses may be late, and by how many ticks, is a note of the step.
//
// On a GPU there are no chunks that come and go: a tensor's pages are looked at where it lies, and all of them are
// armed as a tick begins, once its operands are there.
//
// The tracker sees whether a page was written. No tracker sees whether a written page was read as well, and each
// guesses otherwise: the reads that the ops of the tick announced count there, and no others. So all give one map.
//
// Locks: its own, taken after the session's or the engine's; it calls neither while it holds it. A GPU executor's comes
// after it: the tracker asks where tensors lie.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/indexed.h"
#include "engine/watched_frames.h"
#include "os/tracker_kinds.h"
#include "pack/units.h"
#include "vedette/session.h"

namespace vedette::detail {

class PageProfile final : public FrameWatch {
 public:
  struct Options {
    engine::WatchedFrames* watched =
        nullptr;  // borrowed; nullptr: the memory is a GPU's, which needs nothing from `chunk` on
    std::byte* arena = nullptr;
    ProfileTicks ticks = ProfileTicks::layers;
    Bytes chunk;
    std::uint32_t chunks = 0;
    const TrackerKind* tracker = nullptr;  // nullptr: no page can be seen
    std::string passed_over;               // why not a better one
    bool or_mprotect = false;              // where the frames cannot become of the tracker's kind, after all
    std::function<void(std::string_view)> on_message;
  };
  // Between steps. Frames become trackable where the source needs it, and everything resident is watched from here on.
  // nullptr: no page can be seen here; a message has said why.
  static std::unique_ptr<PageProfile> start(Options options);

  // The same without an engine.
  static std::unique_ptr<PageProfile> start_with(std::unique_ptr<PageTracker> tracker, Options options);

  PageProfile(Options options, std::unique_ptr<PageTracker> tracker, FrameKind frames);
  ~PageProfile() override;  // after finish()

  // from before the step; all of them, then watch()
  void lives(std::uint64_t offset, std::uint64_t bytes, std::uint32_t tensor);
  void watch();
  void born(std::uint64_t offset, std::uint64_t bytes, std::uint32_t tensor);  // before its chunks are
  // after its last access, while its chunks are there
  void died(std::uint64_t offset);
  void op_begins(std::uint32_t op, const LoggedOp& what, std::span<const LoggedTensor> tensors);
  void op_is_ready();  // its operands are in place, and nothing of it has run
  void op_ended();
  // Ends the last tick and all watching; frames are fast again. Unannounced writes become announced ones.
  void finish(StepLog& log);

  void shown(ChunkIndex chunk, bool held) noexcept override;
  void hiding(ChunkIndex chunk) noexcept override;
  void faulted(ChunkIndex chunk, std::uint64_t page, bool write) noexcept override;

 private:
  struct Place {
    std::uint64_t bytes = 0;
    std::uint32_t tensor = 0;
    std::uint64_t born_in = 0;  // tick; 0: before the step
  };
  struct Late {  // unannounced accesses that may be told so many ticks after they happened
    std::uint64_t pages = 0, most_ticks = 0;
    std::uint64_t ticks_since = 0;  // every tensor was looked at
  };
  struct Tick {  // ops [first, last]
    std::uint32_t first = 0, last = 0;
  };

  void end_tick();
  void look_at(std::uint64_t offset, std::uint64_t bytes);  // its watched pages, into ranges_
  void look_at_everything();
  void collect();  // ranges_
  void note(const TouchedRange& touched);
  void settle();  // notes of this tick, merged, into pages_
  void announce(StepLog& log) const;
  void failed(const Error& error) noexcept;
  std::uint64_t chunk_pages() const noexcept { return options_.chunk.value / page_size; }
  AddressRange chunk_range(ChunkIndex chunk) const noexcept {
    return {options_.arena + chunk.value * options_.chunk.value, options_.chunk.value};
  }

  const Options options_;
  const std::unique_ptr<PageTracker> tracker_;
  const FrameKind frames_;  // trackable ones are armed when they are shown, before a thread can touch them

  std::mutex mutex_;
  std::map<std::uint64_t, Place> places_;            // living tensors, by offset
  Indexed<ChunkIndex, std::uint8_t> tracked_;        // by chunk
  std::uint64_t tracked_pages_ = 0, looked_at_ = 0;  // the second: since everything was
  std::vector<AddressRange> ranges_;
  std::vector<TouchedRange> touched_;
  bool failed_ = false;
  Late late_;

  // The running tick.
  bool in_tick_ = false, armed_ = false;
  std::uint64_t tick_ = 1;
  Tick ops_;
  std::optional<LayerIndex> layer_;
  std::vector<std::uint64_t> operands_, newborn_;          // offsets
  std::vector<std::uint32_t> announced_, announced_read_;  // tensors
  std::vector<LoggedPages> noted_;

  std::vector<Tick> ticks_;         // those that ended
  std::vector<LoggedPages> pages_;  // op: the tick's last
};

}  // namespace vedette::detail
