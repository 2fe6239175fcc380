// Chunks and frames: a chunk is shown or hidden, and gets a frame or gives it back.
//
// A chunk whose pages a transfer of the program has pinned is busy. It is passed over, and tried again later. The
// transfer may itself wait for a chunk that finds no room: pread(2) into several chunks pins those it has reached.
//
// Thread rule: as common.h's.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>

#include "engine/busy_chunks.h"
#include "engine/common.h"
#include "engine/frame_watch.h"

namespace vedette::engine {

class Frames : PartOfEngine {
 public:
  explicit Frames(Common& engine) : PartOfEngine(engine) {}

  // --- chunks --------------------------------------------------------------------------------------------------------
  void pin(ChunkIndex chunk);  // for the running op
  void show(FrameIndex frame, ChunkIndex chunk);
  // False: its pages are pinned, and it is out of the question as a victim until retry_busy().
  [[nodiscard]] bool hide(ChunkIndex chunk, FrameIndex frame);
  void hide_ahead(ChunkIndex chunk);  // of its write, if it may leave
  // The frame of `from` is shown at `to` from now on. False: its pages are pinned.
  [[nodiscard]] bool shift(ChunkIndex from, ChunkIndex to);
  void make_resident(ChunkIndex chunk);  // one that is hidden or has arrived
  void make_resident_all();
  void wake(ChunkIndex chunk);       // threads that wait for it
  void restore(const Fault& fault);  // of a chunk that is shown: those threads, and a page that was discarded

  // --- frames --------------------------------------------------------------------------------------------------------
  // Gives an unbacked chunk a frame. False: none is available, or only in dead chunks that are busy. `in_use`: threads
  // may touch the chunk already.
  bool back(ChunkIndex chunk, bool in_use);
  std::optional<FrameIndex> take_parked();      // a ready frame, or the frame of a dead chunk
  std::optional<FrameIndex> take_idle();        // the frame of a dead chunk, parked
  std::uint32_t ready_wanted() const noexcept;  // ahead of need
  std::uint32_t spare() const noexcept;         // ready, beyond those wanted
  void await_want(std::unique_lock<std::mutex>& lock) { wanted_.wait(lock); }  // fewer are ready than wanted, maybe
  void want_all() { wanted_.notify_all(); }  // ends await_want(); without the lock, too

  // --- busy chunks ---------------------------------------------------------------------------------------------------
  bool any_busy() const noexcept { return !busy_.empty(); }
  Nanoseconds pause() const noexcept { return busy_.pause(); }  // of those, until they are tried again
  bool retry_busy();                                            // after a pause. True: some are busy no more
  bool waits_for_busy();  // nothing but pinned chunks could make room. Stops the program after a minute
  void room_found() noexcept { busy_.room_found(); }

  // --- the watch -----------------------------------------------------------------------------------------------------
  bool watched() const noexcept { return watch_ != nullptr; }
  // borrowed; nullptr: none. It hears of every chunk that is shown now, as if it came or left
  void set_watch(FrameWatch* watch) noexcept;
  void tell_hold(ChunkIndex chunk);  // held, or no longer
  void tell(const Fault& fault);

 private:
  std::optional<FrameIndex> take_free();  // a ready frame, parked
  void set_busy(ChunkIndex chunk);

  FrameWatch* watch_ = nullptr;
  BusyChunks busy_;
  std::condition_variable wanted_;
};

}  // namespace vedette::engine
