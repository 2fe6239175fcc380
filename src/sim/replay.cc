// The public face of the simulator.
#include "vedette/replay.h"

#include "model/dependences.h"
#include "sim/rows.h"
#include "sim/simulator.h"
#include "vedette/machine.h"

namespace vedette {
namespace {

Result<Trace> in_order_of(const Trace& trace, const Plan& plan) {
  if (auto why = misplaced(trace, plan.order)) return Error{Cause::malformed_input, "replay: " + *why};
  return reordered(trace, plan.order);
}

Result<Replayed> replay_policy(const Trace& trace, const Machine& machine, Policy& policy, const ReplayOptions& options,
                               std::span<const sim::Operands> in_turn = {}) {
  constexpr int most_plans = 16;  // a policy that never settles is measured with its last plan
  const sim::Step step = sim::flatten(trace);
  const Machine as_it_runs = on_its_bus(machine), as_planned = within_host_memory(machine);
  for (int plans = 1;; ++plans) {
    auto plan = policy.prepare(trace, as_planned);
    if (!plan) return plan.error();
    bool replan = false;
    std::optional<Trace> in_order;
    std::optional<sim::Step> step_in_order;
    if (!plan->order.empty() && !plan->paging) {
      if (!in_turn.empty())
        return Error{Cause::unsupported, "replay: a step whose rows differ is not replayed in another order"};
      auto made = in_order_of(trace, *plan);
      if (!made) return made.error();
      step_in_order = sim::flatten(in_order.emplace(*std::move(made)));
    }
    auto replayed = sim::simulate({.trace = in_order ? *in_order : trace,
                                   .step = step_in_order ? *step_in_order : step,
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
  if (plan.order.empty() || plan.paging)
    return sim::simulate(trace, sim::flatten(trace), on_its_bus(machine), plan, options);
  const auto made = in_order_of(trace, plan);
  if (!made) return made.error();
  return sim::simulate(*made, sim::flatten(*made), on_its_bus(machine), plan, options);
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
