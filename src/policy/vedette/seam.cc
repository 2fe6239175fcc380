// Evictions moved over the seam between two steps: see seam.h.
#include "policy/vedette/seam.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "model/liveness.h"
#include "policy/canvas/room.h"
#include "policy/vedette/rehearsal.h"
#include "policy/vedette/sweep.h"

namespace vedette::planning {
namespace {

class Seam {
 public:
  // Of a tensor that is away as a step begins.
  struct Away {
    std::uint32_t tensor = 0;
    std::size_t evict = 0;   // in Plan::moves
    std::uint32_t back = 0;  // the op that issues its fetch
    std::uint32_t due = 0;   // before which its eviction has to be done, in the next step
  };

  Seam(const Trace& trace, const Uses& uses, const Machine& machine, const Plan& plan)
      : trace_(trace),
        uses_(uses),
        machine_(machine),
        granule_(machine.granule.value),
        most_(static_cast<std::int64_t>(machine.tiers[0].capacity.value)),
        plan_(plan),
        ops_(static_cast<std::uint32_t>(trace.ops.size())),
        near_(occupied_without_moves(trace, uses, granule_)) {
    std::vector<std::vector<std::size_t>> moves(trace.tensors.size());
    for (std::size_t m = 0; m < plan.moves.size(); ++m) moves[plan.moves[m].extent.tensor.value].push_back(m);
    for (std::uint32_t t = 0; t < moves.size(); ++t) {
      if (moves[t].empty() && trace.tensors[t].persistent && plan.home[t].value != 0)
        near_.add(0, ops_, -size({.tensor = {t}}));
      for (const std::size_t m : moves[t])
        if (plan.moves[m].verb == Verb::evict) leaves(m, moves[t]);
    }
    std::stable_sort(away_.begin(), away_.end(), [&](const Away& a, const Away& b) {
      return uses.tensors[a.tensor].uses.front().op < uses.tensors[b.tensor].uses.front().op;
    });
  }

  // Those that memory holds until then; each beside the ones before it.
  std::vector<Away> later() {
    std::vector<Away> found;
    for (Away each : away_) {
      const Move& evict = plan_.moves[each.evict];
      const std::uint32_t gone = evict.due.value;
      const std::int64_t bytes = size(evict.extent);
      const bool wraps = is_due_in_the_next_step(evict);
      if (!wraps && near_.most(gone, ops_) + bytes > most_) continue;
      each.due = wraps ? gone : 0;
      while (each.due < each.back && near_.at(each.due) + bytes <= most_) ++each.due;
      if (each.due < 2) continue;  // it may start when op 0 has ended
      add_over_the_seam(evict, each.due, bytes);
      found.push_back(each);
    }
    return found;
  }

  // They are written one after the other from the end of op 0 on, and promise no more: places are kept until then.
  Plan with(std::span<const Away> later) const {
    std::vector<Away> written(later.begin(), later.end());
    std::stable_sort(written.begin(), written.end(), [](const Away& a, const Away& b) { return a.due < b.due; });
    Plan made = plan_;
    Nanoseconds done = trace_.ops[0].time, begins = done;
    std::uint32_t op = 1;
    for (const Away& each : written) {
      Move& evict = made.moves[each.evict];
      const Link* const link = machine_.link(evict.source, evict.target);
      if (link != nullptr) done += transfer_time(trace_.tensors[each.tensor].bytes, link->bytes_per_s);
      while (op < each.due && begins < done) begins += trace_.ops[op++].time;
      made.home[each.tensor] = {0};
      evict.issue = {0};
      evict.due = {std::min(std::max(op, 2U), each.due)};
    }
    std::stable_sort(made.moves.begin(), made.moves.end(), [](const Move& a, const Move& b) {
      return std::pair(a.issue, a.due) < std::pair(b.issue, b.due);
    });
    return made;
  }

 private:
  std::int64_t size(const Extent& extent) const {
    return static_cast<std::int64_t>(rounded(bytes_of(extent, trace_).value, granule_));
  }

  static bool is_due_in_the_next_step(const Move& evict) { return evict.due <= evict.issue; }
  // From the op before which the eviction is due to op `end` of the next step.
  void add_over_the_seam(const Move& evict, std::uint32_t end, std::int64_t bytes) {
    const std::uint32_t gone = evict.due.value;
    if (is_due_in_the_next_step(evict)) return near_.add(gone, end, bytes);
    near_.add(gone, ops_, bytes);
    near_.add(0, end, bytes);
  }

  // The room of what leaves by move `m`, one of `of_tensor`, until it comes back or dies.
  void leaves(std::size_t m, std::span<const std::size_t> of_tensor) {
    const Move& evict = plan_.moves[m];
    const auto returns = [&](std::size_t other) {
      return plan_.moves[other].verb == Verb::fetch && plan_.moves[other].extent == evict.extent;
    };
    const std::uint32_t t = evict.extent.tensor.value, gone = evict.due.value;
    const std::int64_t bytes = size(evict.extent);
    const auto after =
        std::find_if(of_tensor.begin(), of_tensor.end(), [&](auto other) { return other > m && returns(other); });
    if (after != of_tensor.end()) return near_.add(gone, plan_.moves[*after].issue.value, -bytes);
    if (!trace_.tensors[t].persistent) return near_.add(gone, uses_.tensors[t].death + 1, -bytes);
    const auto first = std::find_if(of_tensor.begin(), of_tensor.end(), returns);
    if (first == of_tensor.end()) return;
    const std::uint32_t back = plan_.moves[*first].issue.value;
    add_over_the_seam(evict, back, -bytes);
    if (!evict.extent.part) away_.push_back({.tensor = t, .evict = m, .back = back});
  }

  const Trace& trace_;
  const Uses& uses_;
  const Machine& machine_;
  const std::uint64_t granule_;
  const std::int64_t most_;
  const Plan& plan_;
  const std::uint32_t ops_;
  Room near_;  // bytes of the fastest tier, by op
  std::vector<Away> away_;
};

}  // namespace

Plan leave_after_the_seam(const Trace& trace, const Uses& uses, const Machine& machine, Plan plan) {
  if (!plan.recomputations.empty() || !plan.in_place.empty() || !plan.order.empty()) return plan;
  Seam seam(trace, uses, machine, plan);
  const std::vector<Seam::Away> later = seam.later();
  if (later.empty()) return plan;
  const Rehearsal rehearsal(trace, machine);
  const auto before = rehearsal.of(plan);
  if (!before) return plan;
  Plan best = plan;
  std::size_t kept = 0, too_many = later.size() + 1;
  for (std::size_t tried = later.size(); kept < tried; tried = (kept + too_many) / 2) {
    Plan made = seam.with({later.data(), tried});
    const auto now = rehearsal.of(made);
    if (now && now->waits <= before->waits) {  // the same bytes move, but costs leave out what ended before the step
      kept = tried;
      best = std::move(made);
    } else {
      too_many = tried;
    }
  }
  return best;
}

}  // namespace vedette::planning
