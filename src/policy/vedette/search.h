// The one search of the planner. A try is a choice: prices of recomputation, knobs of the sweep or prices of a cover,
// shares of the memory and of the tiers. It is swept or covered, laid out, and simulated on the machine; the try of
// least cost is kept. Pure.
#pragma once
#include <cstdint>
#include <vector>

#include "policy/vedette/features.h"
#include "policy/vedette/plan_cost.h"
#include "policy/vedette/recompute.h"
#include "policy/vedette/split.h"
#include "policy/vedette/sweep.h"
#include "vedette/model.h"
#include "vedette/result.h"

namespace vedette::planning {

struct SearchRules {
  // Knobs of the sweep are tried alone, some 40 for 2,000 ops (0.1 s), then as many covers. A machine with two tiers
  // that cannot recompute needs no more; a session plans while its program runs.
  bool knobs_only = false;
  LinkCost link_cost;
  // Moves cost the program some time whether it waits or not: the search ends where the cost is near the bound, not
  // where the step is.
  bool moves_count = false;
  // A plan that asks too much of a full tier in between is none.
  bool judged = false;
  // A plan that is good enough is known already: the least work is enough.
  bool little_left = false;
};

struct Found {
  Plan plan;
  Nanoseconds step, recomputing;  // simulated: of the whole step, and of it running producers again
  Knobs knobs;                    // of the best sweep
  bool covers = false;            // the stays are a cover
  Recomputed recomputed;
  Split parts;  // of recomputed.trace
  // Of the parts, before fetches were issued early; and their plan. Empty where more than knobs were tried.
  std::vector<Stay> stays;
  Plan plan_of_parts;
};

// A step that is no more than a thousandth above the least one is not searched for any longer.
constexpr bool good_enough(Nanoseconds step, Nanoseconds least) {
  return step.value - least.value <= least.value / 1'000;
}

// `setting` names the slower tier of most evictions. Errors: infeasible where no try passes.
Result<Found> search(const Trace& trace, const Machine& machine, const Setting& setting, const Features& features,
                     const SearchRules& rules);

}  // namespace vedette::planning
