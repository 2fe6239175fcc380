// Plans of several sequences of ops that come in turns: what the plan of one step has away as it begins, and the plan
// of the step before had near, moves for nothing. Pure.
#pragma once
#include "policy/canvas/uses.h"
#include "vedette/model.h"

namespace vedette::planning {

// The plan in which persistent tensors that would leave at the end of a step leave early in the next one instead, so
// that more is near where steps meet. They are as many as memory has room for, without more waiting when rehearsed;
// those that are used first in a step come first, whatever the plan. A plan that recomputes stays as it is. O(moves log
// moves), and some ten rehearsals.
Plan leave_after_the_seam(const Trace& trace, const Uses& uses, const Machine& machine, Plan plan);

}  // namespace vedette::planning
