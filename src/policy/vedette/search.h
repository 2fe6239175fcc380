// The planner for machines on which more can be done than moving between two tiers: several slower tiers, and producers
// that can run again. It wraps the one for two tiers (sweep, lay out, fetch early), choosing what that one cannot.
// Pure.
#pragma once
#include "policy/vedette/features.h"
#include "policy/vedette/sweep.h"
#include "vedette/model.h"
#include "vedette/result.h"

namespace vedette::planning {

struct Wide {
  Plan plan;
  Nanoseconds step, recomputing;  // rehearsed: of the whole step, and of it running producers again
  Knobs knobs;
};

// `setting` names the slower tier that holds most of what leaves. Errors: infeasible where no try passes.
Result<Wide> search(const Trace& trace, const Machine& machine, const Setting& setting, const Features& features = {});

}  // namespace vedette::planning
