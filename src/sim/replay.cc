// The public face of the simulator.
#include "vedette/replay.h"

#include "sim/rows.h"
#include "sim/simulator.h"
#include "vedette/machine.h"

namespace vedette {
namespace {

Result<Replayed> replay_policy(const Trace& trace, const Machine& machine, Policy& policy, const ReplayOptions& options,
                               std::span<const sim::Operands> in_turn = {}) {
  constexpr int most_plans = 16;  // a policy that never settles is measured with its last plan
  const sim::Step step = sim::flatten(trace);
  const Machine as_it_runs = on_its_bus(machine);
  for (int plans = 1;; ++plans) {
    auto plan = policy.prepare(trace, machine);
    if (!plan) return plan.error();
    bool replan = false;
    auto replayed = sim::simulate({.trace = trace,
                                   .step = step,
                                   .machine = as_it_runs,
                                   .plan = *plan,
                                   .options = options,
                                   .policy = &policy,
                                   .replan = plans < most_plans ? &replan : nullptr,
                                   .in_turn = in_turn});
    if (replan) continue;
    if (replayed && options.keep_plan) replayed->plan = *std::move(plan);
    return replayed;
  }
}

}  // namespace

Result<Replayed> replay(const Trace& trace, const Machine& machine, const Plan& plan, const ReplayOptions& options) {
  return sim::simulate(trace, sim::flatten(trace), on_its_bus(machine), plan, options);
}

Result<Replayed> replay(const Trace& trace, const Machine& machine, Policy& policy, const ReplayOptions& options) {
  return replay_policy(trace, machine, policy, options);
}

Result<Replayed> replay(const Trace& trace, const Rows& rows, const Machine& machine, Policy& policy,
                        const ReplayOptions& options) {
  if (machine.tiers.empty()) return Error{Cause::malformed_input, "replay: the machine has no tiers"};
  if (auto error = misfit(rows, trace)) return *error;
  const sim::InRows steps = sim::in_rows(trace, rows, machine.tiers[0].capacity);
  sim::AsLive as_live(policy, steps);
  return replay_policy(steps.run, machine, as_live, options, steps.in_turn);
}

}  // namespace vedette
