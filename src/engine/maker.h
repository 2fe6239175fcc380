// Memory for frames: made ahead of need by a thread while the program goes on. It is given back when nothing needed it
// for a while, when the budget is less, or when the program has no more ops here.
//
// Thread rule: as common.h's. Names with `_unlocking` are the migrator's, and release the lock meanwhile.
#pragma once
#include <cstdint>
#include <mutex>
#include <thread>

#include "engine/common.h"
#include "engine/demand.h"
#include "engine/frames.h"
#include "engine/slow_tier.h"
#include "engine/unused_frames.h"

namespace vedette::engine {

class Maker : PartOfEngine {
 public:
  Maker(Common& engine, SlowTier& slow, Frames& frames, Demand& demand)
      : PartOfEngine(engine), slow_(slow), frames_(frames), demand_(demand) {}

  void start();  // the thread
  void join();   // without the lock, when the engine ends

  // Takes the lock itself. False: none is left to make, or there is no memory.
  bool make(std::uint32_t lacking = 1);
  void await_frame(std::unique_lock<std::mutex>& lock);  // that another thread makes
  void make_from_now_on(FrameKind kind) noexcept { kind_ = kind; }

  // --- what nothing needs --------------------------------------------------------------------------------------------
  void step_begins() noexcept { unused_.step_begins(program_.now()); }
  void note_use();                                                               // chunks have taken frames, perhaps
  bool give_unused_back_unlocking(std::unique_lock<std::mutex>& lock) noexcept;  // true: some
  bool give_excess_back_unlocking(std::unique_lock<std::mutex>& lock) noexcept;  // true: some

  // --- the end of the program's ops ----------------------------------------------------------------------------------
  void wind_down();
  bool winds_down() const noexcept { return winding_down_; }
  bool give_all_back();  // while winding down; else false

 private:
  void run() noexcept;
  std::uint32_t at_once(std::uint32_t lacking) const noexcept;  // frames

  SlowTier& slow_;
  Frames& frames_;
  Demand& demand_;
  std::thread thread_;
  FrameKind kind_ = FrameKind::fast;  // of frames that are made
  bool winding_down_ = false, failed_ = false;
  UnusedFrames unused_;
};

}  // namespace vedette::engine
