// The discrete events of steps: ops in order on one side, one queue a link on the other, room in every tier between
// them. vedette/replay.h describes its model; planners that rehearse many plans of one trace flatten it once and come
// here. Pure: no clock but its own.
#pragma once
#include "sim/inputs.h"

namespace vedette::sim {

Result<Replayed> simulate(const Inputs& in);

// The plan alone.
inline Result<Replayed> simulate(const Trace& trace, const Step& step, const Machine& machine, const Plan& plan,
                                 const ReplayOptions& options,
                                 std::int64_t longest_ns = std::numeric_limits<std::int64_t>::max()) {
  return simulate(
      {.trace = trace, .step = step, .machine = machine, .plan = plan, .options = options, .longest_ns = longest_ns});
}

}  // namespace vedette::sim
