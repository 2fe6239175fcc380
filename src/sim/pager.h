// A driver that pages against the clock: what a replay is where Plan::paging asks for it. Pure.
#pragma once
#include "sim/step.h"
#include "vedette/model.h"
#include "vedette/policy.h"
#include "vedette/replay.h"

namespace vedette::sim {

// As simulate(), for plans with `paging`. `policy` hears of ops that begin and of the step's end; its moves are hints
// to the driver.
Result<Replayed> page(const Trace& trace, const Step& step, const Machine& machine, const Plan& plan,
                      const ReplayOptions& options, Policy* policy, bool* replan);

}  // namespace vedette::sim
