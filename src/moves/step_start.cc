// Where each unit is as the step begins: see step_start.h.
#include "moves/step_start.h"

#include <algorithm>
#include <vector>

#include "moves/move_table.h"

namespace vedette::detail {
namespace {

// Of each unit, the first op that uses it; ~0: none.
std::vector<std::uint32_t> first_uses(const Trace& trace) {
  std::vector<std::uint32_t> first(trace.tensors.size(), ~0u);
  for (std::uint32_t i = static_cast<std::uint32_t>(trace.ops.size()); i-- > 0;)
    for (const auto* list : {&trace.ops[i].reads, &trace.ops[i].writes})
      for (const TensorIndex t : *list) first[t.value] = i;
  return first;
}

}  // namespace

StepStart start_of(const Units& units, const Plan& plan) {
  if (plan.moves.empty() && plan.in_place.empty()) return {};
  const std::vector<std::uint32_t> first = first_uses(units.trace);
  enum class Is : std::uint8_t { near, away, neither };
  std::vector<Is> is(first.size(), Is::near);
  for (const Move& move : plan.moves) {
    Is& unit = is[move.extent.tensor.value];
    if (move.extent.part || move.verb == Verb::drop) unit = Is::neither;
    // A fetch that is due in the next step has begun before that step does.
    const bool in_this_step = move.issue <= move.due && move.due.value <= first[move.extent.tensor.value];
    if (unit == Is::near && move.verb == Verb::fetch && in_this_step) unit = Is::away;
  }
  for (const InPlace& each : plan.in_place)
    if (each.op.value == first[each.tensor.value] && is[each.tensor.value] == Is::near)
      is[each.tensor.value] = Is::away;
  for (const Recomputation& each : plan.recomputations) is[each.tensor.value] = Is::neither;
  const bool chooses = chooses_tiers(plan);
  StepStart start;
  for (std::uint32_t u = 0; u < is.size(); ++u) {
    if (!units.trace.tensors[u].persistent || first[u] == ~0u || is[u] == Is::neither) continue;
    (is[u] == Is::near ? start.near : start.away)
        .push_back({.chunks = ChunkRange::of({units.where[u].first}, units.where[u].count),
                    .first_use = first[u],
                    .tier = chooses && is[u] == Is::away && u < plan.home.size() ? plan.home[u] : TierIndex{}});
  }
  const auto earlier = [](const StepStart::Unit& a, const StepStart::Unit& b) { return a.first_use < b.first_use; };
  std::stable_sort(start.near.begin(), start.near.end(), earlier);
  std::stable_sort(start.away.rbegin(), start.away.rend(), earlier);
  return start;
}

}  // namespace vedette::detail
