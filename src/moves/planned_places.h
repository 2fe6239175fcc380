// Where the memory of a planned step lies, for executors that place tensors in one range: each tensor has an offset
// whenever it is in fast memory, the same in every step. A tensor that leaves and comes back may lie elsewhere then.
//
// What always holds: no two tensors that the plan has in fast memory at one moment overlap. All lie inside the range.
//
// Pure, deterministic; any thread.
#pragma once

#include "moves/executor.h"
#include "moves/move_table.h"
#include "pack/tensor_units.h"

namespace vedette::detail {

// Gives offsets to `parts`, which tabulate() made of `plan`: to each fetch, each birth, and the tensors with which the
// step begins. Errors: Cause::infeasible where no places are found in `range`; a plan with less room may have them.
struct StepInTime {
  const Units& units;
  const Moments& moments;
};
Result<PlannedPlaces> arrange(const StepInTime& step, const Plan& plan, MoveTable& parts, Executor::Stretch range);

}  // namespace vedette::detail
