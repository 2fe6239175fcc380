// Which order of ops to plan, where the machine can run them in another one than the traced. Pure.
#pragma once
#include <functional>
#include <memory>

#include "vedette/policy.h"

namespace vedette::planning {

// Plans by the planner that `make` gives, of the traced order and of others; the least step of a replay stays, with the
// planner's reactions in it. Others are schedules by lists and what SwapAdvisor's genetic search ends with; of the
// former those are planned that serve Belady's policy best. Some six plans.
Result<Plan> plan_in_best_order(const Trace& trace, const Machine& machine,
                                const std::function<std::unique_ptr<Policy>()>& make);

}  // namespace vedette::planning
