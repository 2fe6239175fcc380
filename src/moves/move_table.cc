// A plan's moves, grouped: see move_table.h.
#include "moves/move_table.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/assert.h"
#include "moves/unchanged.h"

namespace vedette::detail {
namespace {

ChunkRange chunks_of(const Units& units, TensorIndex unit) {
  return ChunkRange::of({units.where[unit.value].first}, units.where[unit.value].count);
}

ChunkRange chunks_of(const Units& units, const Extent& extent, Bytes chunk) {
  const ChunkRange whole = chunks_of(units, extent.tensor);
  if (!extent.part) return whole;
  const std::uint64_t begin = extent.part->begin.value / chunk.value,
                      end = (extent.part->end.value + chunk.value - 1) / chunk.value;
  return ChunkRange::of({whole.first().value + static_cast<std::uint32_t>(begin)},
                        static_cast<std::uint32_t>(end - begin));
}

// Backwards, twice: the first pass is the step after this one.
Grouped<OpMoves::NextUse> next_uses_of(const Units& units) {
  const Trace& trace = units.trace;
  const auto count = static_cast<std::uint32_t>(trace.ops.size());
  std::vector<std::uint32_t> next(trace.tensors.size(), ~0u);
  std::vector<std::pair<std::uint32_t, OpMoves::NextUse>> uses;
  for (const bool this_step : {false, true}) {
    const std::uint32_t base = this_step ? 0 : static_cast<std::uint32_t>(ticks_of_a_step);
    for (std::uint32_t i = count; i-- > 0;) {
      const Op& op = trace.ops[i];
      for (const TensorIndex t : op.frees) next[t.value] = base + i + 1;
      for (const auto* list : {&op.reads, &op.writes})
        for (const TensorIndex t : *list)
          if (this_step) uses.push_back({i, {.chunks = chunks_of(units, t), .after = next[t.value]}});
      for (const auto* list : {&op.reads, &op.writes})
        for (const TensorIndex t : *list) next[t.value] = base + i;
    }
  }
  return {count, uses};
}

// Of each unit, the last op before which it is recomputed; 0: none.
std::vector<OpIndex> recomputed_last(const Units& units, const Plan& plan) {
  std::vector<OpIndex> last(units.trace.tensors.size());
  for (const Recomputation& each : plan.recomputations)
    last[each.tensor.value] = std::max(last[each.tensor.value], each.before);
  return last;
}

}  // namespace

bool chooses_tiers(const Plan& plan) {
  std::optional<TierIndex> first;
  const auto is_another = [&](TierIndex tier) { return *(first = first.value_or(tier)) != tier; };
  return std::ranges::any_of(plan.in_place, [&](const InPlace& each) { return is_another(each.tier); }) ||
         std::ranges::any_of(plan.moves,
                             [&](const Move& move) { return move.verb == Verb::evict && is_another(move.target); });
}

MoveTable tabulate(const Units& units, const Plan& plan, Bytes chunk, Fetches start) {
  const std::size_t parts = units.trace.ops.size();
  VEDETTE_ASSERT(parts < ticks_of_a_step);
  const std::vector<char> unchanged = unchanged_until_gone(units.trace, plan);
  const bool chooses = chooses_tiers(plan);
  const std::vector<OpIndex> made_last = recomputed_last(units, plan);
  std::vector<std::pair<std::uint32_t, OpMoves::Fetch>> fetches;
  std::vector<std::pair<std::uint32_t, OpMoves::Departure>> departures;
  for (std::size_t m = 0; m < plan.moves.size(); ++m) {
    const Move& move = plan.moves[m];
    const ChunkRange chunks = chunks_of(units, move.extent, chunk);
    const bool fetch = move.verb == Verb::fetch;
    const bool early = fetch && start == Fetches::early && move.issue.value > 0;
    const std::uint32_t part = move.issue.value - (early ? 1 : 0);
    if (fetch)
      fetches.push_back({part, {.chunks = chunks, .source = move.source, .unchanged = unchanged[m] != 0}});
    else
      departures.push_back(
          {part,
           {.chunks = chunks,
            .source = move.source,
            .target = chooses ? move.target : TierIndex{},
            .dead = move.verb == Verb::drop,
            .recomputed = move.verb == Verb::drop && move.issue < made_last[move.extent.tensor.value]}});
  }
  std::vector<std::pair<std::uint32_t, OpMoves::Made>> made;
  for (const Recomputation& each : plan.recomputations)
    made.push_back({each.before.value, {.chunks = chunks_of(units, each.tensor)}});
  std::vector<std::pair<std::uint32_t, OpMoves::InPlace>> in_place;
  for (const InPlace& each : plan.in_place) {
    const Op& op = units.trace.ops[each.op.value];
    const auto has = [&](const std::vector<TensorIndex>& list) {
      return std::binary_search(list.begin(), list.end(), each.tensor);
    };
    in_place.push_back(
        {each.op.value, {.chunks = chunks_of(units, each.tensor), .read = has(op.reads), .written = has(op.writes)}});
  }
  return {{parts, fetches}, {parts, departures}, next_uses_of(units), {parts, made}, {parts, in_place}};
}

}  // namespace vedette::detail
