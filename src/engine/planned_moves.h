// The moves that a plan names for an op, or that a prediction asks for where no plan is followed: they are queued as
// the op begins or ends. Beside them the books hear when chunks are used next, and which ones an op changes.
//
// Thread rule: as common.h's.
#pragma once
#include <cstddef>
#include <span>

#include "engine/common.h"
#include "engine/demand.h"
#include "engine/frames.h"
#include "engine/in_place.h"
#include "engine/running_op.h"
#include "engine/slow_tier.h"
#include "moves/executor.h"

namespace vedette::engine {

class PlannedMoves : PartOfEngine {
 public:
  using Part = detail::Executor::Part;
  using Departures = std::span<const detail::OpMoves::Departure>;

  PlannedMoves(Common& engine, SlowTier& slow, Frames& frames, RunningOp& op, Demand& demand, OperandsInPlace& in_place)
      : PartOfEngine(engine),
        slow_(slow),
        frames_(frames),
        op_(op),
        demand_(demand),
        in_place_(in_place),
        queues_(demand.queues()) {}

  void take(const Part& part);          // that begins
  void mark_changes(const Part& part);  // a part without a plan
  void let_leave(Departures departures);
  // For operands that are missing, and for what is predicted. As an op begins or ends, so that nothing is hidden beside
  // a thread that computes.
  void make_room_ahead(std::size_t missing);
  void forget();

 private:
  void take_prediction(const detail::Ahead& ahead, Ticks step_begins);  // predicted_moves.cc
  void catch_up(const detail::StepStart& start, Ticks step_begins);     // catching_up.cc
  void settle(const detail::OpMoves::Departure& move);
  void sort_fetches();
  Ticks busy_until(double ns_of_fetch);

  SlowTier& slow_;
  Frames& frames_;
  RunningOp& op_;
  Demand& demand_;
  OperandsInPlace& in_place_;
  MoveQueues& queues_;
};

}  // namespace vedette::engine
