// How fast could any plan be? A proven lower bound on a step's time, so that each measured number has its ideal beside
// it. The proof stands in docs/policy.md, "The lower bound".
#pragma once
#include "vedette/model.h"

namespace vedette {

// At least this long a step takes on average, whoever plans it, in the traced order: the ops' times, and on top what
// must be waited for or run again. Shares nothing with any planner. O(ops * accesses * ops), in coarser steps beyond
// some 3,000 ops.
Nanoseconds lower_bound(const Trace&, const Machine&);

}  // namespace vedette
