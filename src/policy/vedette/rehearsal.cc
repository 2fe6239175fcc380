// Plans against the simulator's clock: see rehearsal.h.
#include "policy/vedette/rehearsal.h"

#include <utility>

#include "base/readable.h"
#include "policy/canvas/op_times.h"
#include "policy/vedette/machines.h"
#include "vedette/machine.h"

namespace vedette::planning {
namespace {

Machine where_it_runs(const Machine& machine) {
  Machine alone = without_interference(machine);
  return machine.habits.early_fetches ? on_its_bus(std::move(alone)) : alone;
}

}  // namespace

Rehearsal::Rehearsal(const Trace& trace, const Machine& machine)
    : step_(sim::flatten(trace)),
      plan_cost_(trace, step_, where_it_runs(machine),
                 {.percent = machine.habits.early_fetches ? link_time_percent(machine) : 1}) {}

std::optional<Rehearsed> Rehearsal::of(const Plan& plan) const {
  const auto replayed = plan_cost_.simulate(plan);
  if (!replayed) return std::nullopt;
  return Rehearsed{.cost = {plan_cost_.cost(*replayed)},
                   .waits = replayed->measured.stall + replayed->recompute,
                   .recomputing = replayed->recompute,
                   .moved = replayed->bytes_in + replayed->bytes_out};
}

std::vector<std::string> reasons_to_recompute(const Trace& trace, const Plan& plan, const Rehearsed& with,
                                              const std::optional<Rehearsed>& without) {
  Bytes bytes;
  for (const Recomputation& each : plan.recomputations) bytes += trace.tensors[each.tensor.value].bytes;
  std::vector<std::string> said = {readable_exactly(bytes) + " are dropped and recomputed in a step, which takes " +
                                   readable_ms(with.recomputing) + " when rehearsed; " + readable_exactly(with.moved) +
                                   " still move, and the step waits " + readable_ms(with.waits - with.recomputing) +
                                   " for them"};
  if (without)
    said.push_back("the best plan found that recomputes nothing moves " + readable_exactly(without->moved) +
                   " and waits " + readable_ms(without->waits));
  return said;
}

}  // namespace vedette::planning
