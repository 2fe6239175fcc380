// The planner for machines on which more can be done than moving between two tiers: several slower tiers, and producers
// that can run again. It wraps the one for two tiers (sweep, lay out, fetch early), choosing what that one cannot.
// Pure.
#pragma once
#include "policy/vedette_sweep.h"
#include "policy/vedette_without.h"
#include "vedette/model.h"
#include "vedette/result.h"

namespace vedette::planning {

struct Wide {
  Plan plan;
  Nanoseconds step, remaking;  // rehearsed: of the whole step, and of it running producers again
  Knobs knobs;
};

// `setting` names the slower tier that holds most of what leaves. Errors: infeasible where no try passes.
Result<Wide> plan_widely(const Trace& trace, const Machine& machine, const Setting& setting,
                         const Without& without = {});

}  // namespace vedette::planning
