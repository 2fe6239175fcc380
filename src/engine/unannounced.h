// Accesses that no op announced: page faults.
//
// Thread rule: any thread. serve() takes the lock itself.
#pragma once
#include "engine/common.h"
#include "engine/demand.h"
#include "engine/frames.h"
#include "engine/running_op.h"
#include "engine/slow_tier.h"

namespace vedette::engine {

class UnannouncedAccesses : PartOfEngine {
 public:
  UnannouncedAccesses(Common& engine, SlowTier& slow, Frames& frames, RunningOp& op, Demand& demand)
      : PartOfEngine(engine), slow_(slow), frames_(frames), op_(op), demand_(demand) {}

  void serve(const Fault& fault) noexcept;

 private:
  void stray(const Fault& fault) noexcept;

  SlowTier& slow_;
  Frames& frames_;
  RunningOp& op_;
  Demand& demand_;
};

}  // namespace vedette::engine
