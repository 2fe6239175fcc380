// A plan between fast memory and one slower tier in which nothing is recomputed. The search tries knobs of the sweep
// and covers alone; for a session its plan is fitted to how moves run there. Pure.
#pragma once
#include <cstdint>

#include "policy/vedette/features.h"
#include "policy/vedette/sweep.h"
#include "vedette/model.h"
#include "vedette/result.h"

namespace vedette::planning {

struct Moving {
  Plan plan;
  Nanoseconds stall;  // of the step, rehearsed
};

// `percent`: of the promised bandwidth, which `machine` has; for the plan's reasons. Errors: infeasible where no try
// passes.
Result<Moving> search_two_tiers(const Trace& trace, const Machine& machine, const Setting& setting,
                                const Features& features, std::uint64_t percent);

}  // namespace vedette::planning
