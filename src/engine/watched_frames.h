// Frames whose pages a tracker can see (session/page_profile.h): they change their kind, and a watch hears which chunks
// they are shown at.
//
// Thread rule: any thread. Functions take the lock themselves.
#pragma once
#include <cstddef>

#include "engine/frame_watch.h"
#include "engine/migrator.h"

namespace vedette::engine {

class WatchedFrames : PartAbove {
 public:
  WatchedFrames(Common& engine, const Below& below, Migrator& migrator)
      : PartAbove(engine, below), migrator_(migrator) {}

  // Every frame changes its kind, with no I/O in flight; a thread that touches memory meanwhile waits. At most one
  // frame more than the budget. Error: frames changed so far stay so.
  Result<void> convert(FrameKind kind) noexcept;
  // as ChunkMemory's, of memory just born
  void expect_writes(std::byte* begin, std::size_t bytes, ChunkIndex chunk) noexcept;
  // borrowed; nullptr: none. It hears of every chunk that is shown now, as if it came or left
  void set_watch(FrameWatch* watch) noexcept;

 private:
  Migrator& migrator_;
};

}  // namespace vedette::engine
