// The parts of the engine that stand above the moves: the migrator, and the program's side (engine.h draws them).
//
// Thread rule: references alone.
#pragma once
#include "engine/common.h"
#include "engine/demand.h"
#include "engine/frames.h"
#include "engine/in_place.h"
#include "engine/maker.h"
#include "engine/running_op.h"
#include "engine/slow_tier.h"

namespace vedette::engine {

struct Below {
  SlowTier& slow;
  Frames& frames;
  RunningOp& op;
  Demand& demand;
  OperandsInPlace& in_place;
  Maker& maker;
};

class PartAbove : protected PartOfEngine {
 protected:
  PartAbove(Common& engine, const Below& below)
      : PartOfEngine(engine),
        slow_(below.slow),
        frames_(below.frames),
        op_(below.op),
        demand_(below.demand),
        in_place_(below.in_place),
        maker_(below.maker) {}

  SlowTier& slow_;
  Frames& frames_;
  RunningOp& op_;
  Demand& demand_;
  OperandsInPlace& in_place_;
  Maker& maker_;
};

}  // namespace vedette::engine
