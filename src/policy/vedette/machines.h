// The planner's view of a machine: the slower tier to which most evictions go, and the same machine for other
// questions. Pure.
#pragma once
#include <vector>

#include "policy/vedette/sweep.h"
#include "vedette/model.h"

namespace vedette::planning {

Setting setting_of(const Machine& machine, TierIndex slow);  // evictions go to `slow`; 0: none can leave
TierIndex tier_for_all(const Trace& trace,
                       const Machine& machine);               // the fastest slower one with room for all, else the last
TierIndex nearest_tier(const Machine& machine);               // the fastest of the slower ones; 0: there is none
std::vector<TierIndex> slower_tiers(const Machine& machine);  // joined with the fastest both ways, fastest first
std::uint64_t bytes_of_all(const Trace& trace);
bool first_holds_all(const Trace& trace,
                     const Machine& machine);  // whether the tier below the fastest has room for all
Machine without_interference(Machine machine);
// The weight of a link's time in the cost of a plan; of two equal plans the one that moves less is better.
std::int64_t link_time_percent(const Machine& machine);
Machine with(Machine machine, const Habits& habits);
Machine session_of(const Machine& machine, bool on_bus);

}  // namespace vedette::planning
