// The other way to choose stays than the sweep: what exceeds fast memory, op by op, is covered by gaps between uses, at
// the least time of links. The sweep decides as it walks, by the furthest next use; here all gaps of the step are
// weighed at once, so that as little moves as possible. Which ops a transfer disturbs most is told by prices. Pure.
//
// The cover is a linear program: choose gaps so that at each op those around it have enough bytes. Its dual has a price
// of memory per op, which is found by multiplicative updates (Plotkin, Shmoys, Tardos, "Fast approximation algorithms
// for fractional packing and covering problems", 1995). Gaps are then taken in the order of what they are worth by
// those prices to what they cost, and those that the rest made superfluous are given back, the least worthy first.
#pragma once
#include <array>
#include <cstddef>
#include <vector>

#include "policy/vedette/sweep.h"

namespace vedette::planning {

// The price of a nanosecond of a link, in each stretch of the step. Stretches are a sixteenth of the step each, by the
// time and the operands of its ops: an optimizer's many bytes in little time are several stretches.
struct LinkPrices {
  static constexpr std::size_t stretches = 16;
  std::array<double, stretches> of{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
};

// The stays of a step that repeats, for lay_out(). O(gaps x rounds + gaps log ops).
std::vector<Stay> cover(const Trace& trace, const Uses& uses, const Costs& costs, const Setting& setting,
                        const LinkPrices& prices);

}  // namespace vedette::planning
