// Sentinel's plan for one choice of migration intervals: who is short-lived, which long-lived tensors each interval
// needs, when they are fetched and evicted, and whether that fits. Pure; sentinel.cc chooses among such plans.
#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "policy/sentinel_facts.h"
#include "vedette/model.h"

namespace vedette::sentinel {

// How a step is cut into intervals. Layers are runs of consecutive ops of one layer and phase; groups cut each layer
// further, for steps of which not even one layer fits.
struct Cut {
  std::uint32_t layers_per_interval = 1;
  std::uint32_t ops_per_group = 0;  // 0: layers are whole
  // fetches that find no room an interval ahead are issued when room comes, at last by the op
  bool on_demand = false;
  bool operator==(const Cut&) const = default;
};

// The first use of a run of intervals: what a late fetch was for. Such sites may be left in place on an addressable
// tier.
using Site = std::pair<TensorIndex, OpIndex>;

struct Problem {
  const Trace& trace;
  const Machine& machine;
  TierIndex slow;  // where evicted tensors go
  Facts& facts;    // of the three
};

// nullopt: with these intervals the long-lived tensors do not fit beside the reserved space (Eq. 1).
std::optional<Plan> plan(const Problem& problem, const Cut& cut, const std::set<Site>& left_in_place);

// No plan with these intervals takes less, by predicted_time(); nullopt: they do not fit. Far cheaper than a plan.
// O(accesses).
std::optional<Nanoseconds> least_time(const Problem& problem, const Cut& cut);

// The step's time by this plan, when ops take their traced times, each link moves one tensor after the other in plan
// order, and an op waits for what is due. In-place operands cost their transfer. Measured over the second of two steps;
// left, with a time beyond it, when that takes longer than `limit`.
Nanoseconds predicted_time(const Problem& problem, const Plan& plan, Nanoseconds limit);

}  // namespace vedette::sentinel
