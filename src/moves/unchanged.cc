// For every fetch: the next eviction of the same bytes, round the step's border, and whether a write lies between.
#include "moves/unchanged.h"

#include <algorithm>
#include <optional>

namespace vedette {
namespace {

bool overlap(const Extent& a, const Extent& b) {
  return !a.part || !b.part || (a.part->begin < b.part->end && b.part->begin < a.part->end);
}

}  // namespace

std::vector<char> unchanged_until_gone(const Trace& trace, const Plan& plan) {
  const std::size_t ops = trace.ops.size();
  std::vector<std::vector<std::size_t>> writes(trace.tensors.size()), leaves(trace.tensors.size());  // ops; moves
  for (std::size_t i = 0; i < ops; ++i)
    for (const TensorIndex t : trace.ops[i].writes) writes[t.value].push_back(i);
  for (std::size_t m = 0; m < plan.moves.size(); ++m)
    if (plan.moves[m].verb != Verb::fetch) leaves[plan.moves[m].extent.tensor.value].push_back(m);
  // How many ops after `from` op `at` begins, counted on into the next step.
  const auto after = [&](std::size_t from, std::size_t at) { return at >= from ? at - from : at + ops - from; };
  std::vector<char> unchanged(plan.moves.size());
  for (std::size_t m = 0; m < plan.moves.size(); ++m) {
    const Move& fetch = plan.moves[m];
    if (fetch.verb != Verb::fetch) continue;
    const std::size_t due = fetch.due.value;
    std::optional<std::size_t> gone;
    for (const std::size_t l : leaves[fetch.extent.tensor.value]) {
      if (!overlap(fetch.extent, plan.moves[l].extent)) continue;
      const std::size_t when = after(due, plan.moves[l].issue.value);
      gone = std::min(gone.value_or(when), when);
    }
    const std::vector<std::size_t>& at = writes[fetch.extent.tensor.value];
    unchanged[m] = gone && std::none_of(at.begin(), at.end(), [&](std::size_t op) { return after(due, op) <= *gone; });
  }
  return unchanged;
}

}  // namespace vedette
