// The discrete events of steps: ops in order on one side, one queue a link on the other, room in every tier between them. What it
// models is said in vedette/replay.h; planners that rehearse many plans of one trace flatten it once and come here. Pure: no clock
// but its own.
#pragma once
#include "sim/step.h"
#include "vedette/policy.h"
#include "vedette/replay.h"

namespace vedette::sim {

// `policy` hears of events and may react; null: the plan alone. Stops early, with *replan set, when the policy wants another plan.
Result<Replayed> simulate(const Trace& trace, const Step& step, const Machine& machine, const Plan& plan, const ReplayOptions& options,
                          Policy* policy = nullptr, bool* replan = nullptr);

}  // namespace vedette::sim
