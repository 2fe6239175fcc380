// The search between two tiers: knobs and covers, then fitted to sessions.
#include "policy/vedette/two_tiers.h"

#include <string>
#include <utility>
#include <vector>

#include "base/readable.h"
#include "policy/canvas/op_times.h"
#include "policy/vedette/fit.h"
#include "policy/vedette/machines.h"
#include "policy/vedette/plan_cost.h"
#include "policy/vedette/search.h"
#include "sim/step.h"

namespace vedette::planning {
namespace {

struct Kept {
  FittedToSessions fitted;
  bool covers = false, covered = false;  // the plan's stays are a cover; those before the fit were
  bool cleans() const noexcept { return fitted.knobs.clean_after_last_use_ns >= 0; }
};

LinkCost link_cost_of(const Machine& machine, const Setting& setting) {
  return {.percent = link_time_percent(machine), .slow = setting.slow};
}

std::vector<std::string> reasons_of(const Kept& kept, std::uint64_t percent) {
  const Knobs& knobs = kept.fitted.knobs;
  std::vector<std::string> said = {"of the plans tried, the one kept waits " + readable_ms(kept.fitted.stall) +
                                   " a step when rehearsed"};
  if (kept.covers) {
    said.emplace_back("all gaps between uses were weighed at once, so that as little moves as possible");
  } else {
    said.push_back("fetches may start " + readable_ms({knobs.horizon_ns}) + " before demand would");
    if (knobs.clean_ahead_ns >= 0)
      said.push_back("what changed is written out up to " + readable_ms({knobs.clean_ahead_ns}) +
                     " before its room is needed");
    if (knobs.clean_after_last_use_ns >= 0)
      said.push_back("what lives on after its last use is written out up to " +
                     readable_ms({knobs.clean_after_last_use_ns}) +
                     " before its room is needed, and leaves for nothing when it was used");
  }
  if (kept.fitted.evicted_after_last_use.value > 0)
    said.push_back(readable_exactly(kept.fitted.evicted_after_last_use) +
                   " that no op uses again are written out before they die, while the links idle: what is needed "
                   "next comes into their room");
  if (percent != 100)
    said.push_back("planned for " + std::to_string(percent) + " % of the promised bandwidth, because moves came late");
  return said;
}

Result<Kept> search_and_fit(const Trace& trace, const Machine& machine, const Setting& setting,
                            const Features& features) {
  const bool beside_ops = machine.interference_percent.value_or(default_interference_percent) > 0;
  const SearchRules rules{.knobs_only = true,
                          .link_cost = link_cost_of(machine, setting),
                          .moves_count = machine.habits.early_fetches || beside_ops};
  Machine as_issued = with(without_interference(machine), {});
  as_issued.can_recompute = false;
  auto found = search(trace, as_issued, setting, features, rules);
  if (!found) return found.error();
  Kept kept{
      .fitted = {.plan = std::move(found->plan), .knobs = found->knobs, .stall = found->step - time_of_ops(trace)},
      .covers = found->covers,
      .covered = found->covers};
  if (!machine.habits.early_fetches) return kept;
  kept.fitted = fit_to_sessions(trace, found->parts, machine, setting, features,
                                {std::move(found->stays), std::move(found->plan_of_parts), found->knobs});
  kept.covers = kept.covered && !kept.cleans();  // only sweeps clean
  return kept;
}

// The better of the two in a session; `other` may be none.
Kept better(const Trace& trace, const Machine& machine, const Setting& setting, Kept one, Result<Kept> other) {
  if (!other) return one;
  const sim::Step step = sim::flatten(trace);
  const PlanCost plan_cost(trace, step, session_of(machine, one.cleans() || other->cleans()),
                           link_cost_of(machine, setting));
  const auto of_one = plan_cost.simulate(one.fitted.plan), of_other = plan_cost.simulate(other->fitted.plan);
  const bool is_other = of_other && (!of_one || plan_cost.cost(*of_other) < plan_cost.cost(*of_one));
  return is_other ? *std::move(other) : one;
}

}  // namespace

Result<Moving> search_two_tiers(const Trace& trace, const Machine& machine, const Setting& setting,
                                const Features& features, std::uint64_t percent) {
  auto kept = search_and_fit(trace, machine, setting, features);
  if (!kept) return kept.error();
  // The fit to sessions does other things to a sweep than to a cover, so that both are fitted.
  if (kept->covered && machine.habits.early_fetches) {
    Features sweeps = features;
    sweeps.covering = false;
    kept = better(trace, machine, setting, *std::move(kept), search_and_fit(trace, machine, setting, sweeps));
  }
  Moving moving{.plan = std::move(kept->fitted.plan), .stall = kept->fitted.stall};
  moving.plan.reasons = reasons_of(*kept, percent);
  return moving;
}

}  // namespace vedette::planning
