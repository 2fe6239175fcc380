// Plans by likeness: a step of other sizes than those that were planned gets its plan in a few passes, from theirs,
// where a search takes a thousand. Which gaps between uses are spent in the slow tier, and from when to when, is
// carried over by ops; sizes, parts and room are counted anew. Pure, deterministic.
#pragma once
#include <span>

#include "vedette/model.h"
#include "vedette/result.h"

namespace vedette::planning {

struct PlannedStep {
  const Trace* trace;
  const Plan* plan;
};

// A plan for `trace` on `machine` from plans for the same ops with other sizes there; the nearest on each side of its
// size serve. It moves only, between the fastest tier and one that holds all, and the judge accepts it. Tensors need
// not correspond, since a gap is known by the ops at its ends, and the share of its bytes that is away is carried over.
// A few sweeps are simulated beside what is carried over, and the least step stays. Errors: malformed_input where no
// plan is given, or one is of other ops; infeasible where no try fits. O((ops + accesses + moves) log ops), but for the
// judge.
Result<Plan> plan_by_likeness(std::span<const PlannedStep> planned, const Trace& trace, const Machine& machine);

}  // namespace vedette::planning
