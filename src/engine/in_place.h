// Operands that an op uses where they lie: in slower memory that the processor reaches, a NUMA node's. The slot's own
// memory is shown at the chunk. No bytes are copied, and the chunk has no frame.
//
// A chunk that was lent stays so until it is fetched, or no plan is followed any more. Until then it counts as present:
// an op for which its fetch comes too late uses it there. A chunk that is elsewhere, in fast memory or on a disk below,
// comes to the op as any operand does, and leaves behind it for the tier where the plan has it.
//
// Thread rule: as common.h's.
#pragma once
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "engine/common.h"
#include "engine/demand.h"
#include "engine/frames.h"
#include "engine/running_op.h"
#include "engine/slow_tier.h"
#include "moves/executor.h"

namespace vedette::engine {

class OperandsInPlace : PartOfEngine {
 public:
  static constexpr TierIndex tier{1};  // the only one

  OperandsInPlace(Common& engine, SlowTier& slow, Frames& frames, RunningOp& op, Demand& demand,
                  const EngineOptions& options);

  void use(std::span<const detail::OpMoves::InPlace> operands);  // by the op that begins
  void slow_down_unlocking(std::unique_lock<std::mutex>& lock);  // that op
  void let_strayed_leave();                                      // it has ended
  bool take_back(ChunkIndex chunk);                              // false: it stays where it is
  void take_all_back();
  void take_back_dead(ChunkIndex chunk);

 private:
  bool lend(ChunkIndex chunk);

  SlowTier& slow_;
  Frames& frames_;
  RunningOp& op_;
  Demand& demand_;
  const std::uint64_t read_, write_;  // bytes a second, as EngineOptions'
  Nanoseconds time_;                  // for operands that the running op uses
  std::vector<ChunkIndex> strayed_;   // of the running op: they were not there
};

}  // namespace vedette::engine
