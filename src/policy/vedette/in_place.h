// Slow memory that ops can use in place: of a plan that moves everything, some fetches are left out. Pure.
#pragma once
#include "policy/canvas/uses.h"
#include "vedette/model.h"

namespace vedette::planning {

// The plan in which tensors stay in the slow tier for a while, and ops use them there. The step takes less time so when
// rehearsed: a fetch would come late, or its room is missing elsewhere. Each stretch from a fetch to the
// eviction after it stays as it is, or loses both. A plan that recomputes stays as it is, and so does one for a machine
// that has no such memory. O(moves log moves), and some twenty rehearsals.
Plan leave_in_place(const Trace& trace, const Uses& uses, const Machine& machine, Plan plan);

}  // namespace vedette::planning
