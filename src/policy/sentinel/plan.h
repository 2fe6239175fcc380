// Sentinel's plan for one choice of migration intervals: the short-lived tensors, the long-lived tensors that each
// interval needs, their fetches and evictions, and whether they fit. Pure; sentinel.cc chooses among such plans.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "policy/sentinel/facts.h"
#include "sim/step.h"
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

// The first use of a run of intervals, for which a late fetch was. Such sites may be left in place on an addressable
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

// The least time of a step with these intervals, except where a fetch cancels an eviction that is still queued;
// nullopt: they do not fit. Far cheaper than a plan. O(accesses).
std::optional<Nanoseconds> least_time(const Problem& problem, const Cut& cut);

inline constexpr Nanoseconds longest{std::numeric_limits<std::int64_t>::max() / 4};

// The simulated time of a step by this plan; `longest` where the simulation refuses it. `step` is of the trace.
Nanoseconds predicted_time(const Problem& problem, const sim::Step& step, const Plan& plan);

}  // namespace vedette::sentinel
