// Runs a plan against the clock, op by op: the yardstick of every planner, and what `vedette replay` prints.
//
// Ops run in order. A move is queued when its issue op begins (fetch) or has ended (evict); every link works off one queue in
// plan order, one move at a time, and pays its latency where it was idle before (requests overlap); links of one `shared` group
// split their bandwidth evenly while more than one of them is busy. A fetch starts only when the fastest tier has room for it
// (rounded up to Machine::granule, Plan::reserved left free); an evict gives its room back when it ends, at once when the
// slower tier still holds the same bytes. An op waits (stalls) for its operands and for the room of what is born in it. What it
// misses and nobody planned is fetched on demand, ahead of the queue; where room lacks and nothing is on its way out, the
// resident tensor with the furthest next use is evicted.
//
// Time is whole nanoseconds; the same inputs give the same result, byte for byte. Not modelled: slower tiers' capacity, what
// operands in place cost, faults. O((ops + accesses + moves) * log) a step.
#pragma once
#include <cstdint>
#include <vector>

#include "vedette/model.h"
#include "vedette/policy.h"
#include "vedette/result.h"

namespace vedette {

struct ReplayOptions {
  std::uint32_t steps = 3;  // at least 1; what is measured is the last, the earlier ones reach the steady state
};

struct Replayed {
  StepMeasured measured;        // of the last step; late: indices of moves that were not done when their due op was reached
  Nanoseconds ideal;            // sum of the op times: no wait at all
  Bytes bytes_in, bytes_out;    // fetched, written out, of moves started in the last step
  Bytes bytes_dropped;          // evicted without writing, in the last step
  std::uint32_t unplanned = 0;  // fetches and evictions of the last step that no plan had
  Bytes peak;                   // most bytes used in the fastest tier, moves in flight and workspace included
  std::vector<Nanoseconds> step_times;  // of every step, the first included
};

// Errors: infeasible where an op's operands and workspace exceed the fastest tier; malformed_input where the plan names what
// does not exist; unsupported for recomputations and changed orders.
Result<Replayed> replay(const Trace&, const Machine&, const Plan&, const ReplayOptions& = {});

}  // namespace vedette
