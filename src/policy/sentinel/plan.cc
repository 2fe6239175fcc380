// Sentinel's plan for one choice of intervals. Each long-lived tensor is resident in runs: from its first use in an
// interval to its last use in the last of consecutive intervals that need it. A run begins with a birth or a fetch and
// ends with a death or an eviction. A ledger of bytes per op says which tensors fit.
//
//     interval   |  k-1              |  k                  |  k+1           |
//     run           [fetch ........   use ... use            use .. use] evict ...due
//
// Ops are counted past the end of the step where a run wraps into the next: op n + i is op i of the next step.
#include "policy/sentinel/plan.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <tuple>

#include "base/assert.h"
#include "policy/canvas/room.h"
#include "policy/sentinel/facts.h"
#include "policy/sentinel/runs.h"

namespace vedette::sentinel {
namespace {

class Planner {
 public:
  Planner(const Problem& problem, const Cut& cut, const std::set<Site>& left)
      : trace_(problem.trace),
        machine_(problem.machine),
        slow_(problem.slow),
        facts_(problem.facts),
        demand_(problem, cut),
        on_demand_(cut.on_demand),
        left_(left),
        n_(problem.trace.ops.size()) {}

  std::optional<Plan> make() {
    runs_ = demand_.runs();
    const auto order = [](const Run& a, const Run& b) {
      return std::tuple(a.first, b.uses, a.tensor) < std::tuple(b.first, a.uses, b.tensor);
    };
    std::sort(runs_.begin(), runs_.end(), order);
    if (!occupy_all()) return std::nullopt;
    time_evictions();
    if (!shrink_evictions() || !place_fetches()) return std::nullopt;
    return write();
  }

 private:
  std::uint64_t size(TensorIndex t) const { return facts_.sizes[t.value]; }
  // The ledger. At first all runs at once: op by op for each would cost runs times ops, and weights live through the
  // whole step. False: even they alone do not fit.
  bool occupy_all() {
    const std::vector<std::int64_t> excess = demand_.excess(runs_);
    if (*std::max_element(excess.begin(), excess.end()) > 0) return false;
    excess_.emplace(excess);
    return true;
  }
  // Bytes of long-lived tensors during ops first to last, which may lie past the step's end.
  void add(std::uint64_t first, std::uint64_t last, std::int64_t bytes) {
    for (std::uint64_t begin = first; begin <= last;) {
      const std::uint64_t end = std::min(last + 1, (begin / n_ + 1) * n_);
      excess_->add(begin % n_, begin % n_ + (end - begin), bytes);
      begin = end;
    }
  }
  void occupy(std::uint64_t first, std::uint64_t last, std::uint64_t bytes) {
    add(first, last, static_cast<std::int64_t>(bytes));
  }
  void leave(std::uint64_t first, std::uint64_t last, std::uint64_t bytes) {
    add(first, last, -static_cast<std::int64_t>(bytes));
  }
  bool over(std::uint64_t op) const { return excess_->at(op) > 0; }
  // The first op from which on, until before `first`, there is room for so many bytes more; not before `earliest`.
  std::uint64_t room_from(std::uint64_t earliest, std::uint64_t first, std::uint64_t bytes) const {
    for (std::uint64_t end = first; end > earliest;) {
      const std::uint64_t begin = std::max(earliest, (end - 1) / n_ * n_);
      const auto full = excess_->last_above(begin % n_, begin % n_ + (end - begin), -static_cast<std::int64_t>(bytes));
      if (full) return begin - begin % n_ + *full + 1;
      end = begin;
    }
    return std::min(earliest, first);
  }

  std::int64_t time_at(std::uint64_t op) const {
    return static_cast<std::int64_t>(op / n_) * facts_.began[n_] + facts_.began[op % n_];
  }
  // The first op of [begin, end) that begins at the time or later, `end` where none does; ops may lie past the step's
  // end.
  std::uint64_t first_at(std::uint64_t begin, std::uint64_t end, std::int64_t time) const {
    while (begin < end) {
      const std::uint64_t middle = begin + (end - begin) / 2;
      if (time_at(middle) < time) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    return begin;
  }

  std::uint64_t latest_due(const Run& run) const {
    return std::min(run.latest_due, run.last + std::max<std::uint64_t>(n_ - 1, 1));
  }

  // Evictions are given the time that their link needs, one after the other, as far as the next fetch allows.
  void time_evictions() {
    std::vector<Run*> leaving;
    for (Run& run : runs_) {
      if (run.leaves) leaving.push_back(&run);
    }
    std::sort(leaving.begin(), leaving.end(), [](const Run* a, const Run* b) {
      return std::tuple(a->last, a->tensor) < std::tuple(b->last, b->tensor);
    });
    VEDETTE_ASSERT(leaving.empty() || machine_.link({0}, slow_));
    std::int64_t idle = 0;
    for (Run* run : leaving) {
      idle = std::max(idle, time_at(run->last + 1)) + facts_.out_ns[run->tensor.value];
      run->due = std::max(run->last + 1, first_at(run->last + 1, latest_due(*run), idle));
      occupy(run->last + 1, run->due - 1, size(run->tensor));
    }
  }

  // Where evictions at their leisure leave no room for needed tensors, they are awaited. False: even then it does not
  // fit.
  bool shrink_evictions() {
    std::vector<std::vector<std::size_t>> begins(n_);  // [op]: runs whose eviction may be under way from there on
    // those of them that may be under way now, in order: all runs for each op would be too many
    std::set<std::size_t> leaving;
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      if (!runs_[r].leaves) continue;
      begins[(runs_[r].last + 1) % n_].push_back(r);
      if (runs_[r].due > n_) leaving.insert(r);
    }
    for (std::uint64_t i = 0; i < n_; ++i) {
      leaving.insert(begins[i].begin(), begins[i].end());
      for (auto each = leaving.begin(); each != leaving.end() && over(i); each = leaving.erase(each)) {
        Run& run = runs_[*each];
        const std::uint64_t at = run.last < i ? i : i + n_;
        if (at <= run.last || at >= run.due) continue;
        leave(at, run.due - 1, size(run.tensor));
        run.due = at;
      }
      if (over(i)) return false;
    }
    return true;
  }

  // Fetches, in order of first use: as early in the interval before as there is room. False: case 2, which must not
  // occur.
  bool place_fetches() {
    for (std::size_t r = 0; r < runs_.size(); ++r) {  // leave_in_place() appends
      if (!runs_[r].fetched) continue;
      const bool left =
          !left_.empty() && left_.contains({runs_[r].tensor, {static_cast<std::uint32_t>(runs_[r].first % n_)}});
      if (left && leave_in_place(r)) continue;
      Run& run = runs_[r];
      const std::uint64_t bytes = size(run.tensor), first = run.first + n_;
      const std::uint64_t earliest = std::max(demand_.window(first), first - std::min(first, run.most_ahead));
      const std::uint64_t issue = room_from(earliest, first, bytes);
      if (issue == first && !on_demand_) {
        if (!leave_in_place(r)) return false;
        continue;
      }
      occupy(issue, first - 1, bytes);
      run.issue = first - issue;
    }
    return true;
  }

  // Case 2 and the choice "leave" of case 3: the first interval of the run uses the tensor where it lies, the rest is a
  // run of its own.
  bool leave_in_place(std::size_t r) {
    if (!machine_.tiers[slow_.value].addressable || runs_[r].for_ever) return false;
    Run& run = runs_[r];
    const std::uint64_t interval_end = demand_.begin_of(demand_.interval_of(run.first) + 1);
    const std::span<const std::uint32_t> uses = facts_.uses_of(run.tensor.value);
    std::uint64_t last_in_place = run.first;
    std::optional<std::uint64_t> rest;
    for (std::uint64_t op = run.first; op <= run.last; ++op) {
      if (!std::binary_search(uses.begin(), uses.end(), static_cast<std::uint32_t>(op % n_))) continue;
      if (op >= interval_end) {
        rest = op;
        break;
      }
      last_in_place = op;
      in_place_.push_back({.op = {static_cast<std::uint32_t>(op % n_)}, .tensor = run.tensor, .tier = slow_});
    }
    if (rest) {
      leave(run.first, *rest - 1, size(run.tensor));
      const std::uint64_t before = *rest / n_ * n_;  // runs begin inside the step
      Run tail = run;
      tail.first = *rest - before;
      tail.most_ahead = *rest - last_in_place - 1;
      tail.last -= before;
      if (tail.leaves) tail.due -= before;
      gone_.push_back(r);
      runs_.push_back(tail);
    } else {
      leave(run.first, run.leaves ? run.due - 1 : run.last, size(run.tensor));
      gone_.push_back(r);
    }
    return true;
  }

  Plan write() {
    for (const std::size_t r : gone_) runs_[r].left = true;
    std::erase_if(runs_, [](const Run& run) { return run.left; });
    Plan plan{.home = std::vector<TierIndex>(trace_.tensors.size()), .reserved = {demand_.reserved()}};
    for (std::uint32_t t = 0; t < trace_.tensors.size(); ++t) {
      if (trace_.tensors[t].persistent) plan.home[t] = slow_;
    }
    for (const Run& run : runs_) {
      if (trace_.tensors[run.tensor.value].persistent && near_when_step_begins(run)) plan.home[run.tensor.value] = {0};
      write_moves(run, plan);
    }
    const auto order = [&](const Move& a, const Move& b) { return key(a) < key(b); };
    std::stable_sort(plan.moves.begin(), plan.moves.end(), order);
    std::sort(in_place_.begin(), in_place_.end(), [](const InPlace& a, const InPlace& b) {
      return std::tuple(a.op, a.tensor) < std::tuple(b.op, b.tensor);
    });
    plan.in_place = std::move(in_place_);
    return plan;
  }

  bool near_when_step_begins(const Run& run) const {
    if (run.for_ever || run.last >= n_ || (run.leaves && run.due > n_)) return true;
    return run.fetched && run.first == 0 && run.issue > 0;
  }

  void write_moves(const Run& run, Plan& plan) const {
    const auto op = [&](std::uint64_t at) { return OpIndex{static_cast<std::uint32_t>(at % n_)}; };
    const Extent whole{.tensor = run.tensor};
    if (run.fetched) {
      plan.moves.push_back({.issue = op(run.first + n_ - run.issue),
                            .due = op(run.first),
                            .extent = whole,
                            .source = slow_,
                            .target = {0},
                            .verb = Verb::fetch});
    }
    if (run.leaves) {
      plan.moves.push_back({.issue = op(run.last),
                            .due = op(run.due),
                            .extent = whole,
                            .source = {0},
                            .target = slow_,
                            .verb = Verb::evict});
    }
  }

  // By issue; at one op fetches start before evictions; among fetches the first needed.
  std::tuple<OpIndex, bool, std::uint64_t> key(const Move& move) const {
    return {move.issue, move.verb != Verb::fetch, (move.due.value + n_ - move.issue.value) % n_};
  }

  const Trace& trace_;
  const Machine& machine_;
  TierIndex slow_;
  const Facts& facts_;
  const Demand demand_;
  const bool on_demand_;
  const std::set<Site>& left_;
  const std::uint64_t n_;
  std::vector<Run> runs_;
  std::vector<std::size_t> gone_;         // runs that were left in place
  std::optional<planning::Room> excess_;  // per op: bytes of long-lived tensors beyond the limit
  std::vector<InPlace> in_place_;
};

}  // namespace

std::optional<Plan> plan(const Problem& problem, const Cut& cut, const std::set<Site>& left_in_place) {
  return Planner(problem, cut, left_in_place).make();
}

}  // namespace vedette::sentinel
