// The plan against the moves of the shown step.
//
// A planned fetch of a chunk is matched with the chunk's transfer that started after the engine can have heard of it
// (one op before its issue) and before the due op ended. It is late when its bytes came after a stall for them began,
// early when they lay unused for longer than a twentieth of the step. It is not needed when there was no transfer,
// because the chunk had stayed. A fetch that matches nothing was missed by the plan. A fetched chunk that left before
// any op that uses it ran was wasted.
#include <algorithm>
#include <map>
#include <set>

#include "model/liveness.h"
#include "profiler/report/report.h"

namespace vedette::report {

namespace {

constexpr std::int64_t early_divisor = 20;
constexpr std::size_t most_rows = 500;  // of moves, the worst first

struct Matching {
  const Run& run;
  std::vector<Nanoseconds> waited_from;  // by op: when it was wanted, before any wait for its operands
  // by chunk, by start; earlier: of the step before
  std::map<std::uint64_t, std::vector<const MoveRow*>> fetches, earlier;
  std::set<const MoveRow*> matched;

  explicit Matching(const Run& r) : run(r) {
    for (const OpRow& op : run.ops) waited_from.push_back(op.began);
    for (const StallRow& stall : run.stalls)
      if (!stall.in_allocation && stall.op < waited_from.size())
        waited_from[stall.op] = std::min(waited_from[stall.op], stall.began);
    collect(run.moves, fetches);
    collect(run.earlier_moves, earlier);
  }

  static void collect(const std::vector<MoveRow>& moves, std::map<std::uint64_t, std::vector<const MoveRow*>>& into) {
    for (const MoveRow& move : moves)
      if (move.verb == "fetch") into[move.chunk].push_back(&move);
    for (auto& [chunk, list] : into)
      std::sort(list.begin(), list.end(), [](const MoveRow* a, const MoveRow* b) { return a->started < b->started; });
  }

  // The engine hears of a plan's fetch when the op before its issue begins, so not before the one before that has
  // ended. A GPU's copy starts when its place is free, however far the host is.
  Nanoseconds told(std::uint32_t issue) const {
    if (run.machine.whole_tensors) return Nanoseconds{INT64_MIN};
    return issue < 2 ? run.shown_step()->began : run.ops[std::min<std::size_t>(issue, run.ops.size()) - 2].ended;
  }

  const MoveRow* take(std::uint64_t chunk, Nanoseconds from, Nanoseconds until) {
    const auto found = fetches.find(chunk);
    if (found == fetches.end()) return nullptr;
    for (const MoveRow* moved : found->second)
      if (moved->started >= from && moved->started <= until && matched.insert(moved).second) return moved;
    return nullptr;
  }

  // The transfer that a planned fetch turned into. One that is due in the next step belongs to that one: here it is the
  // last step's that counts, and this step's is only known to be planned.
  const MoveRow* match(std::uint64_t chunk, const PlannedMove& move) {
    const Nanoseconds due_ended = run.ops[std::min<std::size_t>(move.due, run.ops.size() - 1)].ended;
    if (move.due >= move.issue) return take(chunk, told(move.issue), due_ended);
    take(chunk, told(move.issue), Nanoseconds{INT64_MAX});
    const auto before = earlier.find(chunk);
    if (before != earlier.end()) return before->second.back();
    return take(chunk, run.shown_step()->began, due_ended);
  }
};

// A planned move among the recording's moves: one a chunk, or one a tensor under the number of its first chunk.
std::vector<std::uint64_t> chunks_of(const PlanUnit& unit, const PlannedMove& move, const Run& run) {
  if (run.machine.whole_tensors) return {unit.chunks->begin};
  const Bytes chunk = run.chunk;
  std::vector<std::uint64_t> chunks;
  std::uint64_t begin = unit.chunks->begin, end = unit.chunks->end;
  if (move.part) {
    end = std::min(end, begin + (move.part->end.value + chunk.value - 1) / chunk.value);
    begin += move.part->begin.value / chunk.value;
  }
  for (std::uint64_t c = begin; c < end; ++c) chunks.push_back(c);
  return chunks;
}

void judge(PlanFigures& figures, Matching& matching, std::size_t position) {
  const Run& run = matching.run;
  const PlannedMove& move = run.plan->moves[position];
  const PlanUnit& unit = run.plan->units[move.unit];
  for (const std::uint64_t chunk : chunks_of(unit, move, run)) {
    if (move.verb != "fetch") {
      ++figures.planned_evictions;
      continue;
    }
    ++figures.planned_fetches;
    PlanMoveRow row{.position = position,
                    .verb = move.verb,
                    .unit = unit.name,
                    .fate = "not needed",
                    .issue = move.issue,
                    .due = move.due,
                    .bytes = run.machine.whole_tensors ? unit.bytes : run.chunk,
                    .reason = move.reason};
    const MoveRow* moved = matching.match(chunk, move);
    if (moved == nullptr) {
      ++figures.not_needed;
    } else {
      row.lead = matching.waited_from[move.due < run.ops.size() ? move.due : 0] - moved->ended;
      const bool late = row.lead->value<0, early = *row.lead> figures.early_limit;
      row.fate = late ? "late" : early ? "early" : "in time";
      ++(late ? figures.late : early ? figures.early : figures.in_time);
    }
    figures.moves.push_back(std::move(row));
  }
}

// By chunk: the ops that use something in it.
std::map<std::uint64_t, std::vector<std::uint32_t>> uses_of_chunks(const Run& run) {
  std::map<std::uint64_t, std::vector<std::uint32_t>> found;
  const Profile& profile = *run.shown_profile();
  const auto used = uses(profile.trace);
  for (std::size_t t = 0; t < profile.places.size() && t < used.size(); ++t) {
    const std::uint64_t bytes = profile.trace.tensors[t].bytes.value;
    if (!profile.places[t] || bytes == 0) continue;
    const std::uint64_t first = *profile.places[t] / run.chunk.value;
    const std::uint64_t last = run.machine.whole_tensors ? first : (*profile.places[t] + bytes - 1) / run.chunk.value;
    for (std::uint64_t c = first; c <= last; ++c)
      for (const OpIndex op : used[t]) found[c].push_back(op.value);
  }
  return found;
}

std::uint64_t count_wasted(const Run& run) {
  const auto used = uses_of_chunks(run);
  std::map<std::uint64_t, std::vector<const MoveRow*>> leaves;
  for (const MoveRow& move : run.moves)
    if (move.verb != "fetch") leaves[move.chunk].push_back(&move);
  std::uint64_t wasted = 0;
  for (const MoveRow& move : run.moves) {
    if (move.verb != "fetch" || !used.contains(move.chunk)) continue;
    std::optional<Nanoseconds> left;
    for (const MoveRow* leave : leaves[move.chunk])
      if (leave->started >= move.ended && (!left || leave->started < *left)) left = leave->started;
    const auto& ops = used.at(move.chunk);
    const auto ran_between = [&](std::uint32_t op) {
      return op < run.ops.size() && run.ops[op].ended >= move.ended && run.ops[op].began <= *left;
    };
    if (left && std::none_of(ops.begin(), ops.end(), ran_between)) ++wasted;
  }
  return wasted;
}

void sort_worst_first(std::vector<PlanMoveRow>& moves) {
  const auto badness = [](const PlanMoveRow& row) { return !row.lead ? std::int64_t{0} : row.lead->value; };
  std::stable_sort(moves.begin(), moves.end(), [&](const auto& a, const auto& b) {
    if (a.lead.has_value() != b.lead.has_value()) return a.lead.has_value();
    return badness(a) < badness(b);
  });
  if (moves.size() > most_rows) moves.resize(most_rows);
}

}  // namespace

PlanFigures plan_of(const Run& run) {
  PlanFigures figures;
  if (!run.plan || run.ops.empty() || !run.follows_profile() || run.chunk.value == 0) return figures;
  const auto placed = [](const PlanUnit& unit) { return unit.chunks.has_value(); };
  if (!std::all_of(run.plan->units.begin(), run.plan->units.end(), placed)) return figures;
  figures.known = true;
  figures.plan = run.plan->plan;
  figures.reasons = run.plan->reasons;
  figures.early_limit = {run.shown_step()->time().value / early_divisor};
  Matching matching(run);
  for (std::size_t i = 0; i < run.plan->moves.size(); ++i)
    if (run.plan->moves[i].unit < run.plan->units.size()) judge(figures, matching, i);
  for (const MoveRow& move : run.moves) {
    if (move.started >= run.shown_step()->ended) continue;  // between steps: of no op that a plan knows
    if (move.verb == "fetch")
      figures.missed += matching.matched.contains(&move) ? 0 : 1;
    else
      figures.unplanned_evictions += move.cause != "planned" ? 1 : 0;
  }
  for (const StallRow& stall : run.stalls)
    if (!stall.in_allocation) figures.late_wait += stall.ended - stall.began;
  figures.wasted = count_wasted(run);
  sort_worst_first(figures.moves);
  return figures;
}

}  // namespace vedette::report
