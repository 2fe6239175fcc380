// What lingers in fast memory: no op uses it again, yet it dies only later (the operand of a convolution's backward
// that has been copied, while the gradients of weights are computed). A planner gives its room to others when it dies.
// Where the links idle until then, and what is needed next waits for that room, it is better written out, for nothing,
// and the next comes meanwhile. Found in ResNet-18's optimizer (docs/measurements.md). Pure.
#pragma once
#include <cstdint>
#include <functional>

#include "policy/vedette_rehearse.h"
#include "policy/vedette_sweep.h"

namespace vedette::planning {

struct Sent {
  Plan plan;
  Nanoseconds stall;  // rehearsed
  Bytes bytes;        // of what lingered and leaves
};

// The plan with those evictions of what lingers by which it costs less when rehearsed by the rules of sessions
// (`rules`); each group of one last use and one death is tried once, within most_tries rehearsals. No room is counted
// on before the death: in time or not, nobody waits for these writes.
Sent send_what_lingers(const Trace& trace, const Uses& uses, const Machine& machine, const Setting& setting,
                       Rules rules, Plan plan, const std::function<std::int64_t(const Rehearsed&)>& cost_of,
                       std::size_t most_tries);

}  // namespace vedette::planning
