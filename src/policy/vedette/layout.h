// The second half of the planner: stays in the slow tier, laid out around one step that repeats. Here a plan becomes
// one that the judge accepts (room at every op, the same at both ends of the step). Every fetch is issued as early
// as room allows, because real ops and disks do not keep to the profile's times. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "policy/vedette/sweep.h"

namespace vedette::planning {

// The gaps with ops counted from the start of the step that repeats, so repaired that no op uses more than the
// setting's budget; nullopt where an op alone needs more. O((gaps + ops) * log) where nothing is to be repaired.
std::optional<std::vector<Stay>> lay_out(const Trace& trace, const Uses& uses, const Costs& costs,
                                         const Setting& setting, std::vector<Stay> gaps);

// Of a step: fetches are issued no earlier, because real times deviate less, and looking further back takes long.
inline constexpr std::int64_t most_lead = 8;

// Issues fetches as early as room allows, in the order in which they are due, at most `lead` before that; `spare` bytes
// stay free.
void fetch_early(const Trace& trace, const Costs& costs, const Setting& setting, std::int64_t lead_ns,
                 std::int64_t spare, std::vector<Stay>& gaps);

// The plan that does this.
Plan plan_of(const Trace& trace, const Setting& setting, const std::vector<Stay>& gaps);

}  // namespace vedette::planning
