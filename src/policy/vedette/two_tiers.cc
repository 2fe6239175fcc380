// The search between two tiers: knobs alone, then fitted to sessions.
#include "policy/vedette/two_tiers.h"

#include <string>
#include <utility>
#include <vector>

#include "base/readable.h"
#include "policy/canvas/op_times.h"
#include "policy/vedette/fit.h"
#include "policy/vedette/machines.h"
#include "policy/vedette/search.h"

namespace vedette::planning {
namespace {

std::vector<std::string> reasons_of(const Knobs& knobs, Nanoseconds stall, Bytes evicted_after_last_use,
                                    std::uint64_t percent) {
  std::vector<std::string> said = {
      "of the plans tried, the one kept waits " + readable_ms(stall) + " a step when rehearsed",
      "fetches may start " + readable_ms({knobs.horizon_ns}) + " before demand would"};
  if (knobs.clean_ahead_ns >= 0)
    said.push_back("what changed is written out up to " + readable_ms({knobs.clean_ahead_ns}) +
                   " before its room is needed");
  if (knobs.clean_after_last_use_ns >= 0)
    said.push_back("what lives on after its last use is written out up to " +
                   readable_ms({knobs.clean_after_last_use_ns}) +
                   " before its room is needed, and leaves for nothing when it was used");
  if (evicted_after_last_use.value > 0)
    said.push_back(readable_exactly(evicted_after_last_use) +
                   " that no op uses again are written out before they die, while the links idle: what is needed "
                   "next comes into their room");
  if (percent != 100)
    said.push_back("planned for " + std::to_string(percent) + " % of the promised bandwidth, because moves came late");
  return said;
}

}  // namespace

Result<Moving> search_two_tiers(const Trace& trace, const Machine& machine, const Setting& setting,
                                const Features& features, std::uint64_t percent) {
  const SearchRules rules{.knobs_only = true,
                          .link_cost = {.percent = link_time_percent(machine), .slow = setting.slow}};
  Machine as_issued = with(without_interference(machine), {});
  as_issued.can_recompute = false;
  auto found = search(trace, as_issued, setting, features, rules);
  if (!found) return found.error();
  FittedToSessions kept{.plan = std::move(found->plan),
                        .knobs = found->knobs,
                        .stall = found->step - time_of_ops(trace),
                        .evicted_after_last_use = {}};
  if (machine.habits.early_fetches)
    kept = fit_to_sessions(trace, found->parts, machine, setting, features,
                           {std::move(found->stays), std::move(found->plan_of_parts), found->knobs});
  Moving moving{.plan = std::move(kept.plan), .stall = kept.stall};
  moving.plan.reasons = reasons_of(kept.knobs, kept.stall, kept.evicted_after_last_use, percent);
  return moving;
}

}  // namespace vedette::planning
