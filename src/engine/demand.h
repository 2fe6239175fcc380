// Moves that have to be made, and those that may start now: for threads that wait, by a plan, by a prediction, for
// another budget. The migrator starts them (migrator.h).
//
// Thread rule: as common.h's.
#pragma once
#include <cstddef>
#include <cstdint>

#include "engine/common.h"
#include "engine/frames.h"
#include "engine/move_queues.h"
#include "engine/running_op.h"
#include "engine/slow_tier.h"

namespace vedette::engine {

class Demand : PartOfEngine {
 public:
  Demand(Common& engine, SlowTier& slow, Frames& frames, RunningOp& op)
      : PartOfEngine(engine), slow_(slow), frames_(frames), op_(op) {}

  // --- what is queued ------------------------------------------------------------------------------------------------
  MoveQueues& queues() noexcept { return queues_; }
  void request(ChunkIndex chunk);                           // a thread waits for it
  void request_what_follows(ChunkIndex chunk);              // in an operand of an op that runs paged
  void let_leave(ChunkIndex chunk, TierIndex target = {});  // queues its eviction. Target 0: where the store has room
  // Births are blocked for want of so many frames.
  void begin_wait(std::uint32_t frames) noexcept { waiting_frames_ += frames; }
  void end_wait(std::uint32_t frames) noexcept { waiting_frames_ -= frames; }
  bool births_wait() const noexcept { return waiting_frames_ > 0; }
  void op_waits(bool waits) noexcept { op_waits_ = waits; }  // for operands
  bool is_empty() const noexcept { return queues_.empty() && waiting_frames_ == 0; }

  // --- room ----------------------------------------------------------------------------------------------------------
  std::size_t waiting_need() const noexcept;    // frames, for threads that wait
  std::uint32_t promised() const noexcept;      // frames that births of the running op will take, or that go
  std::uint32_t least_frames() const noexcept;  // that the running op and held chunks allow
  std::uint32_t excess() const noexcept;        // frames that go as soon as they are free
  bool room_impossible() const noexcept;        // nothing free, nothing coming, nothing to evict
  bool may_be_unbacked() const noexcept;        // a birth need not wait: a fault will bring it

  // --- what may start ------------------------------------------------------------------------------------------------
  bool has_fetches_due() const noexcept;
  bool writes_wait() const noexcept;  // until reads are done, or room is scarce
  std::uint32_t planned_start(StoreRequest::Direction direction) const noexcept;  // how many moves, now
  bool lacks_frame() const noexcept;                                              // a read could start in a new one
  bool can_start() const noexcept;
  void start_soon();  // wakes the migrator, if it can start something

  static constexpr std::uint32_t least_unheld = 4;  // one instruction may need two operands, each over a chunk's edge

 private:
  SlowTier& slow_;
  Frames& frames_;
  RunningOp& op_;
  MoveQueues queues_;
  std::uint32_t waiting_frames_ = 0;
  bool op_waits_ = false;
};

}  // namespace vedette::engine
