// Plans fitted to how a session runs them. Fetches start one op early there, writes wait for reads, and both directions
// share a disk's bus. Each change of a plan is kept where it costs less in the simulator. Pure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "policy/vedette/features.h"
#include "policy/vedette/plan_cost.h"
#include "policy/vedette/split.h"
#include "policy/vedette/sweep.h"

namespace vedette::planning {

struct Fitted {
  Plan plan;
  Nanoseconds stall;  // simulated
  Bytes bytes;        // evicted after their last use
};

// The plan with the evictions after last uses that lower its cost. Such tensors are used by no op again, yet die only
// later: the operand of a convolution's backward that has been copied, while the gradients of weights are computed. The
// sweep gives their room to others when they die; where the links idle until then, and the next fetch waits for that
// room, an eviction lets the fetch come sooner (docs/tried.md). Tensors of one last use and one death are tried
// together, once, the largest group first, within `most_tries` simulations. Their room is given to others from their
// deaths on, as before, so no op depends on these writes.
Fitted evict_after_last_use(const Trace& trace, const Uses& uses, const Setting& setting, Plan plan,
                            const PlanCost& plan_cost, std::size_t most_tries);

// The result of a search for the parts of a trace, before fetches were issued early.
struct FoundForParts {
  std::vector<Stay> stays;
  Plan plan;
  Knobs knobs;
};

struct FittedToSessions {
  Plan plan;  // of the whole trace
  Knobs knobs;
  Nanoseconds stall;  // of the step, simulated with the parts
  Bytes evicted_after_last_use;
};

// `machine`: of two tiers, with the session's habits. `whole`: of which `parts` are the parts.
FittedToSessions fit_to_sessions(const Trace& whole, const Split& parts, const Machine& machine, const Setting& setting,
                                 const Features& features, FoundForParts found);

}  // namespace vedette::planning
