// The public face of the simulator.
#include "vedette/replay.h"

#include "sim/simulator.h"

namespace vedette {

Result<Replayed> replay(const Trace& trace, const Machine& machine, const Plan& plan, const ReplayOptions& options) {
  return sim::simulate(trace, sim::flatten(trace), machine, plan, options);
}

Result<Replayed> replay(const Trace& trace, const Machine& machine, Policy& policy, const ReplayOptions& options) {
  constexpr int most_plans = 16;  // a policy that never settles is measured with its last plan
  const sim::Step step = sim::flatten(trace);
  for (int plans = 1;; ++plans) {
    auto plan = policy.prepare(trace, machine);
    if (!plan) return plan.error();
    bool replan = false;
    auto replayed = sim::simulate(trace, step, machine, *plan, options, &policy, plans < most_plans ? &replan : nullptr);
    if (!replayed || !replan) return replayed;
  }
}

}  // namespace vedette
