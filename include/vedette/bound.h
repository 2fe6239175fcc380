// A proven lower bound on a step's time under any plan: the ideal beside each measured number. The proof is in
// src/sim/bound.cc, its idea in docs/policy.md, "The lower bound".
#pragma once
#include "vedette/memory_prices.h"
#include "vedette/model.h"

namespace vedette {

// The least average time of a step in the traced order, by the rules of vedette/replay.h: the ops' times and the stalls
// and recomputations that no plan avoids. It says nothing of steps under a driver that pages (Replayed::paged), whose
// ops run while their operands arrive. It shares no code with any planner. O(ops * accesses * ops), in coarser steps
// beyond some 3,000 ops. Thread rule: any thread.
Nanoseconds lower_bound(const Trace&, const Machine&);

// Its derivatives. O(ops * accesses * ops), as the bound. Thread rule: any thread.
MemoryPrices memory_prices(const Trace&, const Machine&);

}  // namespace vedette
