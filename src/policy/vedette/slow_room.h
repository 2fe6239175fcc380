// Stays that fit into the slowest tier as the judge counts it, where that tier has room for little more than what fast
// memory does not hold. A move takes room in both tiers until it is due, so moves become shorter there. Pure.
#pragma once
#include <optional>
#include <vector>

#include "policy/vedette/sweep.h"

namespace vedette::planning {

// Whether the setting's slow tier is one that stays can fill: there is none behind it, and not all tensors fit.
bool may_fill(const Trace& trace, const Machine& machine, const Setting& setting);

// Where all tiers together hold less than the step has at once and cannot recompute: infeasible, with what is missing.
std::optional<Error> too_much_for_all_tiers(const Trace& trace, const Machine& machine);

// Evictions are issued later and fetches are due sooner at ops where the slow tier would hold more than it can; where
// that is not enough, tensors stay that fast memory has room for. False where it still holds too much at some op.
// O(stays log stays + ops); at each op that is too full, the square of the moves that are under way there.
bool fit_slow_tier(const Trace& trace, const Costs& costs, const Machine& machine, const Setting& setting,
                   std::vector<Stay>& gaps);

}  // namespace vedette::planning
