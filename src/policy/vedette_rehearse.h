// A plan run against the clock, as vedette/replay.h describes it. It lives with the planner, who rehearses what it plans; replay()
// is its public face. Pure: no clock but its own.
#pragma once
#include "policy/vedette_uses.h"
#include "vedette/replay.h"

namespace vedette::planning {

// As replay(); `uses` is uses_of(trace), which a planner that rehearses many plans makes once.
Result<Replayed> rehearse(const Trace& trace, const Uses& uses, const Machine& machine, const Plan& plan, const ReplayOptions& options);

}  // namespace vedette::planning
