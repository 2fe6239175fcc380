// Plans against the simulator's clock: see rehearsal.h.
#include "policy/vedette/rehearsal.h"

#include <algorithm>

#include "base/readable.h"
#include "policy/vedette/machines.h"
#include "sim/simulator.h"

namespace vedette::planning {
namespace {

std::string ms(Nanoseconds time) {
  return std::to_string(time.value / 1'000'000) + "." + std::to_string(time.value / 100'000 % 10) + " ms";
}

}  // namespace

Rehearsal::Rehearsal(const Trace& trace, const Machine& machine)
    : trace_(trace), step_(sim::flatten(trace)), machine_(without_interference(machine)), link_time_percent_(1) {
  if (!machine.habits.early_fetches) return;
  machine_ = on_its_bus(machine_);
  link_time_percent_ = std::max<std::int64_t>(3, machine.interference_percent.value_or(default_interference_percent));
}

std::optional<Rehearsed> Rehearsal::of(const Plan& plan) const {
  const auto replayed = sim::simulate(trace_, step_, machine_, plan, {.steps = 2});
  if (!replayed) return std::nullopt;
  Nanoseconds links;
  for (const Nanoseconds busy : replayed->link_busy) links += busy;
  return Rehearsed{.cost = {replayed->measured.time.value + links.value / 100 * link_time_percent_},
                   .waits = replayed->measured.stall + replayed->recompute,
                   .recomputing = replayed->recompute,
                   .moved = replayed->bytes_in + replayed->bytes_out};
}

std::vector<std::string> reasons_to_recompute(const Trace& trace, const Plan& plan, const Rehearsed& with,
                                              const std::optional<Rehearsed>& without) {
  Bytes bytes;
  for (const Recomputation& each : plan.recomputations) bytes += trace.tensors[each.tensor.value].bytes;
  std::vector<std::string> said = {readable_exactly(bytes) + " are dropped and recomputed in a step, which takes " +
                                   ms(with.recomputing) + " when rehearsed; " + readable_exactly(with.moved) +
                                   " still move, and the step waits " + ms(with.waits - with.recomputing) +
                                   " for them"};
  if (without)
    said.push_back("the best plan found that recomputes nothing moves " + readable_exactly(without->moved) +
                   " and waits " + ms(without->waits));
  return said;
}

}  // namespace vedette::planning
