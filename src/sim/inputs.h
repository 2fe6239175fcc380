// The inputs of one simulation. It borrows all of it for its length. Pure.
#pragma once
#include <cstdint>
#include <limits>
#include <span>

#include "sim/step.h"
#include "vedette/policy.h"
#include "vedette/replay.h"

namespace vedette::sim {

struct Inputs {
  const Trace& trace;
  const Step& step;  // of the trace
  const Machine& machine;
  const Plan& plan;
  const ReplayOptions& options;
  Policy* policy = nullptr;  // hears of events and may react; null: the plan alone
  // set where the policy wants another plan, and the simulation stops there; null: it goes on with this one
  bool* replan = nullptr;
  // where steps differ: the operands of one step after the other, and then again from the first; tensors that `step`
  // does not name have no known next use
  std::span<const Operands> in_turn = {};
  // an Error of Cause::infeasible as soon as the last step is certain to take longer: of many plans only the best one's
  // time is wanted
  std::int64_t longest_ns = std::numeric_limits<std::int64_t>::max();
};

}  // namespace vedette::sim
