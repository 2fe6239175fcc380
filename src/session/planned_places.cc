// Residencies of a plan's tensors, and their offsets: see planned_places.h.
#include "session/planned_places.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "place/planned.h"

namespace vedette::detail {
namespace {

constexpr std::uint32_t no_fetch = ~0u;

struct Interval {  // of one tensor in fast memory
  std::uint32_t unit = 0;
  Span<std::uint32_t> moments;                      // begin > end: from one step into the next
  std::uint32_t part = no_fetch, fetch = no_fetch;  // parts[part].fetches[fetch] begins it
  bool at_start = false;                            // it is there when the step begins
};

struct Change {  // a tensor comes to fast memory, or leaves it, by a move
  std::uint32_t moment = 0;
  std::uint32_t part = no_fetch, fetch = no_fetch;
};

// By unit, in the order of their moments: what the plan's moves do to it.
std::vector<std::vector<Change>> changes_of(const StepInTime& step, const MoveTable& parts) {
  std::unordered_map<std::uint32_t, std::uint32_t> unit_at;  // by first chunk
  for (std::uint32_t u = 0; u < step.units.where.size(); ++u) unit_at[step.units.where[u].first] = u;
  std::vector<std::vector<Change>> changes(step.units.where.size());
  for (std::uint32_t p = 0; p < parts.size(); ++p) {
    const auto [begin, end] = step.moments.ops[p];
    const OpMoves moves = parts[p];
    for (std::uint32_t f = 0; f < moves.fetches.size(); ++f)
      changes[unit_at.at(moves.fetches[f].chunks.first().value)].push_back({.moment = begin, .part = p, .fetch = f});
    for (const OpMoves::Departure& departure : moves.departures)
      changes[unit_at.at(departure.chunks.first().value)].push_back({.moment = end});
  }
  return changes;
}

// The intervals of one unit. One that is in fast memory when the step ends goes on into the next.
void add_intervals(const StepInTime& step, std::uint32_t unit, const std::vector<Change>& changes, bool begins_here,
                   std::vector<Interval>& intervals) {
  const Span<std::uint32_t> life = step.moments.lives[unit];
  const bool lives_on = life.end == step.moments.length;
  std::optional<Interval> open;
  if (begins_here) open = Interval{.unit = unit, .moments = {life.begin, 0}, .at_start = life.begin == 0};
  const std::size_t first = intervals.size();
  for (const Change& change : changes) {
    const bool comes = change.fetch != no_fetch;
    if (comes && !open) {
      open = Interval{.unit = unit, .moments = {change.moment, 0}, .part = change.part, .fetch = change.fetch};
    } else if (!comes && open) {
      open->moments.end = change.moment;
      intervals.push_back(*std::exchange(open, std::nullopt));
    }
  }
  if (!open) return;
  if (!lives_on) {
    open->moments.end = life.end;
    return intervals.push_back(*open);
  }
  // It lasts until the first departure of the next step: one interval with what this step began with.
  if (first < intervals.size() && intervals[first].at_start) {
    intervals[first].moments.begin = open->moments.begin;
    intervals[first].part = open->part, intervals[first].fetch = open->fetch;
    return;
  }
  // Born here and dead before the next step's first op; or in fast memory throughout.
  const std::uint32_t first_op = step.moments.ops.empty() ? 0 : step.moments.ops.front().begin;
  const bool throughout = open->at_start || open->moments.begin < first_op;
  open->moments.end = throughout ? open->moments.begin : first_op;
  intervals.push_back(*open);
}

}  // namespace

Result<PlannedPlaces> arrange(const StepInTime& step, const Plan& plan, MoveTable& parts, Bytes range) {
  const Trace& trace = step.units.trace;
  const std::vector<std::vector<Change>> changes = changes_of(step, parts);
  std::vector<Interval> intervals;
  for (std::uint32_t u = 0; u < trace.tensors.size(); ++u) {
    // A tensor that leaves as the step ends is at home until its copy has ended, but its place is given away.
    const bool moves = trace.tensors[u].persistent && !changes[u].empty();
    const bool near = moves ? changes[u].back().fetch != no_fetch : plan.home.empty() || plan.home[u] == TierIndex{0};
    add_intervals(step, u, changes[u], near, intervals);
  }
  std::vector<place::Residency> residencies;
  for (const Interval& each : intervals)
    residencies.push_back({.storage = {each.unit},
                           .ops = {{each.moments.begin}, {each.moments.end}},
                           .bytes = trace.tensors[each.unit].bytes});
  auto placed = place::place_step(residencies, {.ops = step.moments.length, .budget = range});
  if (!placed) return placed.error();
  PlannedPlaces places;
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    const Interval& each = intervals[i];
    const std::uint64_t offset = placed->offset[i];
    const UnitChunks where = step.units.where[each.unit];
    if (each.fetch != no_fetch) parts.fetches_to_place(each.part)[each.fetch].place = offset;
    if (each.at_start) places.at_start.push_back({ChunkRange::of({where.first}, where.count), offset});
    if (each.fetch == no_fetch && step.moments.lives[each.unit].begin > 0) places.births[where.first] = offset;
  }
  return places;
}

}  // namespace vedette::detail
