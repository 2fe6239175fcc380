// How long does a step take that follows a plan in given places? A tensor that is born or fetched waits for the copy
// out of its place, and an op for its operands. Copies run one after the other on a stream each way, and the host
// queues them early enough. And which ops have to end before a copy begins?
//
// Pure, deterministic; any thread. Recomputation takes no time here.
#pragma once
#include <vector>

#include "moves/executor.h"
#include "moves/move_table.h"
#include "moves/planned_places.h"

namespace vedette::detail {

struct TimeInPlaces {
  Nanoseconds step;
  std::vector<bool> waited_for;  // by part, as PlannedPlaces has it
};

// A step that follows another one like it. `parts` and `places` are of one plan for the same step and machine.
TimeInPlaces time_in_places(const StepInTime& step, const MoveTable& parts, const PlannedPlaces& places,
                            const Machine& machine);

}  // namespace vedette::detail
