// A plan expects its step to begin as the same plan's step ended. A step after one of another plan, or of none, begins
// otherwise.
//
// Pure.
#pragma once
#include "moves/executor.h"
#include "pack/units.h"

namespace vedette::detail {

// Units that live before the step and move whole. Units that the plan drops, or moves in parts, are in neither list.
StepStart start_of(const Units& units, const Plan& plan);

}  // namespace vedette::detail
