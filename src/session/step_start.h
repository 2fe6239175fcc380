// What a plan has in fast memory, and what not, when its step begins: a step after one of another plan, or of none,
// begins with something else.
//
// Pure.
#pragma once
#include "pack/units.h"
#include "session/executor.h"

namespace vedette::detail {

// Units that the step finds and moves whole. What the plan recomputes or keeps by parts is in neither list.
StepStart start_of(const Units& units, const Plan& plan);

}  // namespace vedette::detail
