// The discrete events of steps: ops in order on one side, one queue a link on the other, room in every tier between
// them. What it models is said in vedette/replay.h; planners that rehearse many plans of one trace flatten it once and
// come here. Pure: no clock but its own.
#pragma once
#include <span>

#include "sim/step.h"
#include "vedette/policy.h"
#include "vedette/replay.h"

namespace vedette::sim {

// `policy` hears of events and may react; null: the plan alone. Stops early, with *replan set, when the policy wants
// another plan. `in_turn`: where steps differ, the operands of one step after the other, and then again from the first;
// those that `step` does not name are of tensors whose next use nobody knows.
Result<Replayed> simulate(const Trace& trace, const Step& step, const Machine& machine, const Plan& plan,
                          const ReplayOptions& options, Policy* policy = nullptr, bool* replan = nullptr,
                          std::span<const Operands> in_turn = {});

}  // namespace vedette::sim
