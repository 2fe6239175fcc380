// Which slower tier each stay goes to, where the first of them does not hold everything. Pure.
#pragma once
#include <vector>

#include "policy/vedette_sweep.h"

namespace vedette::planning {

// Sets Stay::tier: as many of the longest stays as needed go to the next slower tier, and come back early enough for
// its link. O(gaps * ops) where a tier overflows, nothing else.
void spread_over_tiers(const Trace& trace, const Uses& uses, const Machine& machine, const Setting& setting,
                       std::vector<Stay>& gaps);

}  // namespace vedette::planning
