// Residencies of a plan's tensors, and their offsets: see planned_places.h.
#include "moves/planned_places.h"

#include <algorithm>
#include <map>
#include <utility>

#include "model/producers.h"
#include "moves/copies_out.h"
#include "moves/planned_offsets.h"

namespace vedette::detail {
namespace {

constexpr std::uint32_t none = ~0u;

// How a tensor comes to fast memory: list[entry] of a part's fetches, or of recomputations before it.
struct Coming {
  enum class By : std::uint8_t { birth, fetch, recomputation } by = By::birth;
  std::uint32_t part = none, entry = none;
};

struct Interval {  // of one tensor in fast memory
  std::uint32_t unit = 0;
  Span<std::uint32_t> moments;  // begin > end: from one step into the next
  Coming coming;                // the fetch that begins it
  bool at_start = false;        // it is there when the step begins
  std::uint32_t gone = none;  // when the copy out has ended that starts at its end; before its begin: in the next step
};

struct Change {  // a tensor comes to fast memory, or leaves it, by a move
  std::uint32_t moment = 0;
  Coming coming;
  std::uint32_t gone = 0;  // of one that leaves: when its copy has ended, by the plan; below `moment`: in the next step
  bool comes() const { return coming.by != Coming::By::birth; }
};

// The step's moments, and some more before each op before which something is recomputed: one for each run of a
// producer, since other results of a run are there for its time alone.
class Timeline {
 public:
  Timeline(const StepInTime& step, const Plan& plan) : step_(step), runs_(step.moments.ops.size()) {
    const Recomputation* before = nullptr;
    for (const Recomputation& each : plan.recomputations) {
      if (before == nullptr || before->before != each.before || before->producer != each.producer)
        ++runs_[each.before.value];
      before = &each;
    }
    std::uint32_t more = 0;
    for (std::size_t p = 0; p < runs_.size(); ++p) {
      if (runs_[p] == 0) continue;
      more += runs_[p];
      from_.push_back({step.moments.ops[p].begin, more});
    }
  }
  std::uint32_t at(std::uint32_t moment) const {
    const auto next =
        std::partition_point(from_.begin(), from_.end(), [&](const auto& each) { return each.first <= moment; });
    return moment + (next == from_.begin() ? 0 : std::prev(next)->second);
  }
  // Of a part: when the plan's fetches may come, and the first run begins.
  std::uint32_t comes(std::uint32_t part) const { return at(step_.moments.ops[part].begin) - runs_[part]; }
  std::uint32_t begins(std::uint32_t part) const { return at(step_.moments.ops[part].begin); }
  std::uint32_t ends(std::uint32_t part) const { return at(step_.moments.ops[part].end); }
  Span<std::uint32_t> life(std::uint32_t unit) const {
    const Span<std::uint32_t> life = step_.moments.lives[unit];
    return {at(life.begin), life.end == step_.moments.length ? length() : at(life.end)};
  }
  std::uint32_t length() const { return step_.moments.length + (from_.empty() ? 0 : from_.back().second); }

 private:
  const StepInTime& step_;
  std::vector<std::uint32_t> runs_;                            // [part], before it
  std::vector<std::pair<std::uint32_t, std::uint32_t>> from_;  // a moment, and how many more there are from it on
};

// By unit and the op at which they start: when the plan has the copies of evictions end.
using Evictions = std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t>;

// Between two ops what is born counts as the later one's: to the plan a copy that is due there has ended by then.
Evictions evictions_of(const Plan& plan, const Timeline& time) {
  Evictions ends;
  for (const Move& move : plan.moves) {
    if (move.verb != Verb::evict || move.source != TierIndex{0}) continue;
    ends[{move.extent.tensor.value, move.issue.value}] = move.due.value == 0 ? 0 : time.ends(move.due.value - 1);
  }
  return ends;
}

// By unit, in the order of their moments: the effects of the plan's moves.
std::vector<std::vector<Change>> changes_of(const StepInTime& step, const Timeline& time, const MoveTable& parts,
                                            const Evictions& evictions) {
  std::unordered_map<std::uint32_t, std::uint32_t> unit_at;  // by first chunk
  for (std::uint32_t u = 0; u < step.units.where.size(); ++u) unit_at[step.units.where[u].first] = u;
  std::vector<std::vector<Change>> changes(step.units.where.size());
  for (std::uint32_t p = 0; p < parts.size(); ++p) {
    const OpMoves moves = parts[p];
    const auto come = [&](ChunkRange chunks, Coming::By by, std::uint32_t entry) {
      changes[unit_at.at(chunks.first().value)].push_back(
          {.moment = time.comes(p), .coming = {.by = by, .part = p, .entry = entry}});
    };
    for (std::uint32_t f = 0; f < moves.fetches.size(); ++f) come(moves.fetches[f].chunks, Coming::By::fetch, f);
    for (std::uint32_t m = 0; m < moves.made.size(); ++m) come(moves.made[m].chunks, Coming::By::recomputation, m);
    for (const OpMoves::Departure& departure : moves.departures) {
      const std::uint32_t unit = unit_at.at(departure.chunks.first().value);
      const auto copy = evictions.find({unit, p});
      changes[unit].push_back({.moment = time.ends(p), .gone = copy == evictions.end() ? time.ends(p) : copy->second});
    }
  }
  return changes;
}

// The intervals of one unit. One that is in fast memory when the step ends goes on into the next. A dead one that is
// recomputed is a means, and dies again when the op begins.
void add_intervals(const StepInTime& step, const Timeline& time, std::uint32_t unit, const std::vector<Change>& changes,
                   bool begins_here, std::vector<Interval>& intervals) {
  const Span<std::uint32_t> life = time.life(unit);
  const bool lives_on = life.end == time.length();
  std::optional<Interval> open;
  if (begins_here) open = Interval{.unit = unit, .moments = {life.begin, 0}, .at_start = life.begin == 0};
  const std::size_t first = intervals.size();
  std::vector<Interval> means;
  for (const Change& change : changes) {
    const Interval fresh{.unit = unit, .moments = {change.moment, 0}, .coming = change.coming};
    if (change.coming.by == Coming::By::recomputation && change.moment >= life.end) {
      means.push_back(fresh);
      means.back().moments.end = time.begins(change.coming.part) + 1;
    } else if (change.comes() && !open) {
      open = fresh;
    } else if (!change.comes() && open) {
      const bool in_next_step = change.gone < change.moment;
      const bool a_whole_step = in_next_step && (open->at_start || change.gone >= open->moments.begin);
      open->moments.end = change.moment;
      if (change.gone != change.moment && !a_whole_step) open->gone = change.gone;
      intervals.push_back(*std::exchange(open, std::nullopt));
    }
  }
  if (open && !lives_on) {
    open->moments.end = life.end;
    intervals.push_back(*open);
  } else if (open && first < intervals.size() && intervals[first].at_start) {
    // It lasts until the first departure of the next step: one interval with the one at this step's beginning.
    intervals[first].moments.begin = open->moments.begin;
    intervals[first].coming = open->coming;
  } else if (open) {
    // Born here and dead before the next step's first op; or in fast memory throughout.
    const std::uint32_t first_op = step.moments.ops.empty() ? 0 : time.comes(0);
    const bool throughout = open->at_start || open->moments.begin < first_op;
    open->moments.end = throughout ? open->moments.begin : first_op;
    intervals.push_back(*open);
  }
  intervals.insert(intervals.end(), means.begin(), means.end());
}

// Other results of a producer that runs again: their places stay unknown, but there is room for them.
void add_scratch(const StepInTime& step, const Timeline& time, const Plan& plan,
                 std::vector<moves::Residency>& residencies) {
  if (plan.recomputations.empty()) return;
  const Trace& trace = step.units.trace;
  const std::vector<Op> all = producers(trace);
  const std::vector<Recomputation>& list = plan.recomputations;
  std::uint32_t run = 0;
  for (std::size_t r = 0; r < list.size();) {
    if (r == 0 || list[r].before != list[r - 1].before) run = 0;
    std::vector<TensorIndex> made;
    const Recomputation& first = list[r];
    for (; r < list.size() && list[r].before == first.before && list[r].producer == first.producer; ++r)
      made.push_back(list[r].tensor);
    const std::uint32_t moment = time.comes(first.before.value) + run++;
    for (const TensorIndex t : all[first.producer.value].writes)
      if (std::find(made.begin(), made.end(), t) == made.end())
        residencies.push_back({.storage = t, .ops = {{moment}, {moment + 1}}, .bytes = trace.tensors[t.value].bytes});
  }
}

// A copy keeps the place that it reads to itself where there is room: a tensor that takes the place earlier waits for
// the copy. Where no places are found, more copies give theirs up.
Result<moves::Placement> place_beside_copies(const std::vector<Interval>& intervals,
                                             const std::vector<moves::Residency>& residencies, std::uint32_t length,
                                             Executor::Stretch range) {
  std::vector<CopyOut> copies;
  std::vector<std::size_t> of;  // whose copies they are
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    if (intervals[i].gone == none) continue;
    copies.push_back({.moments = {intervals[i].moments.end, intervals[i].gone}, .bytes = residencies[i].bytes});
    of.push_back(i);
  }
  const moves::StepShape shape{.ops = length, .budget = range.bytes, .alignment = range.unit};
  auto early = moves::place_step(residencies, shape);  // each gives its place up as it begins
  if (!early || copies.empty()) return early;
  const std::vector<Bytes> resident = moves::resident_bytes(residencies, shape);
  for (const std::uint64_t percent : {100u, 80u, 65u, 40u}) {
    const std::vector<std::uint32_t> ends = ends_within(copies, resident, {range.bytes.value / 100 * percent});
    std::vector<moves::Residency> beside = residencies;
    for (std::size_t c = 0; c < copies.size(); ++c) beside[of[c]].ops.end = {ends[c]};
    if (auto placed = moves::place_step(beside, shape)) return placed;
  }
  return early;
}

}  // namespace

Result<PlannedPlaces> arrange(const StepInTime& step, const Plan& plan, MoveTable& parts, Executor::Stretch range) {
  const Trace& trace = step.units.trace;
  const Timeline time(step, plan);
  const std::vector<std::vector<Change>> changes = changes_of(step, time, parts, evictions_of(plan, time));
  std::vector<Interval> intervals;
  for (std::uint32_t u = 0; u < trace.tensors.size(); ++u) {
    // A tensor that leaves as the step ends is at home until its copy has ended, but its place is given away.
    const bool moves = trace.tensors[u].persistent && !changes[u].empty();
    const bool near = moves ? changes[u].back().comes() : plan.home.empty() || plan.home[u] == TierIndex{0};
    add_intervals(step, time, u, changes[u], near, intervals);
  }
  std::vector<moves::Residency> residencies;
  for (const Interval& each : intervals)
    residencies.push_back({.storage = {each.unit},
                           .ops = {{each.moments.begin}, {each.moments.end}},
                           .bytes = trace.tensors[each.unit].bytes});
  add_scratch(step, time, plan, residencies);
  auto placed = place_beside_copies(intervals, residencies, time.length(), range);
  if (!placed) return placed.error();
  PlannedPlaces places;
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    const Interval& each = intervals[i];
    const std::uint64_t offset = range.first + placed->offset[i];
    const UnitChunks where = step.units.where[each.unit];
    const auto [by, part, entry] = each.coming;
    if (by == Coming::By::fetch) parts.fetches_to_place(part)[entry].place = offset;
    if (by == Coming::By::recomputation) parts.made_to_place(part)[entry].place = offset;
    if (each.at_start) places.at_start.push_back({ChunkRange::of({where.first}, where.count), offset});
    if (by == Coming::By::birth && step.moments.lives[each.unit].begin > 0) places.births[where.first] = offset;
  }
  return places;
}

}  // namespace vedette::detail
