// The cost of plans with and without recomputation where they would run, by one measure, so that they can be compared;
// and the sentences that say so. A session's links share a bus, and its moves keep its habits. Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "policy/vedette/plan_cost.h"
#include "sim/step.h"
#include "vedette/model.h"

namespace vedette::planning {

struct Rehearsed {
  Nanoseconds cost;         // of the step; of two equal plans the one that moves less costs less
  Nanoseconds waits;        // of the step: stalls, and time spent on recomputation
  Nanoseconds recomputing;  // of it
  Bytes moved;              // in and out
};

class Rehearsal {
 public:
  Rehearsal(const Trace& trace, const Machine& machine);
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;
  std::optional<Rehearsed> of(const Plan& plan) const;  // nullopt: the plan cannot be followed

 private:
  const sim::Step step_;
  const PlanCost plan_cost_;
};

// `without`: the best plan that recomputes nothing; nullopt: there is none.
std::vector<std::string> reasons_to_recompute(const Trace& trace, const Plan& plan, const Rehearsed& with,
                                              const std::optional<Rehearsed>& without);

}  // namespace vedette::planning
