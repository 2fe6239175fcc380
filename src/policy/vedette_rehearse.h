// A plan run against the clock, as vedette/replay.h describes it. It lives with the planner, who rehearses what it
// plans; replay() is its public face. Pure: no clock but its own.
#pragma once
#include <cstdint>
#include <vector>

#include "policy/vedette_uses.h"
#include "vedette/policy.h"

namespace vedette::planning {

struct Rehearsed {  // the fields of Replayed
  StepMeasured measured;
  Nanoseconds ideal;
  Bytes bytes_in, bytes_out, bytes_dropped;
  std::uint32_t unplanned = 0;
  Bytes peak;
  std::vector<Nanoseconds> step_times;
};

// What sessions do and a replay does not: a fetch may start while the op before the one at which it is issued runs, in
// what room that op leaves; and besides, writes wait while something is read, until room is scarce.
enum class Rules : std::uint8_t { replay, early_fetches, session };

// As replay() of that many steps; `uses` is uses_of(trace), which a planner that rehearses many plans makes once.
Result<Rehearsed> rehearse(const Trace& trace, const Uses& uses, const Machine& machine, const Plan& plan,
                           std::uint32_t steps, Rules rules = Rules::replay);

}  // namespace vedette::planning
