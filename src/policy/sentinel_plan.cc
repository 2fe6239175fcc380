// Sentinel's plan for one choice of intervals. Each long-lived tensor is resident in runs: from its first use in an interval to
// its last use in the last of consecutive intervals that need it. A run begins with a birth or a fetch and ends with a death or
// an eviction. A ledger of bytes per op says what fits.
//
//     interval   |  k-1              |  k                  |  k+1           |
//     run           [fetch ........   use ... use            use .. use] evict ...due
//
// Ops are counted past the end of the step where a run wraps into the next: op n + i is op i of the next step.
#include "policy/sentinel_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "base/assert.h"
#include "model/liveness.h"
#include "policy/vedette_room.h"

namespace vedette::sentinel {
namespace {

struct Run {
  TensorIndex tensor;
  std::uint64_t first = 0, last = 0;  // ops: of its first use; of its last use or death. first < ops in a step
  bool fetched = false;               // else born at `first`
  bool leaves = false;                // else dies after `last`, or never goes
  bool for_ever = false;              // needed in every interval: no move at all
  std::uint64_t issue = 0;            // fetched: how many ops before `first` it is issued
  std::uint64_t most_ahead = std::numeric_limits<std::uint64_t>::max();  // of `issue`: before that it is used in place
  std::uint64_t due = 0;                                                 // leaves: the op before which it is gone
  std::uint64_t latest_due = 0;                                          // leaves: when the next fetch of the tensor may begin
  bool left = false;                                                     // in place: no run any more
  std::size_t uses = 0;                                                  // in the run: the hotter is fetched first
};

std::uint64_t rounded(Bytes bytes, Bytes granule) { return (bytes.value + granule.value - 1) / granule.value * granule.value; }

bool same_layer(const Op& a, const Op& b) { return a.layer == b.layer && a.phase == b.phase; }

// begins[k]: the first op of the k-th piece; one more entry at the end.
std::vector<std::uint64_t> cut_layers(const Trace& trace, std::uint32_t ops_per_group) {
  std::vector<std::uint64_t> begins;
  for (std::uint64_t i = 0; i < trace.ops.size(); ++i) {
    const bool fresh = i == 0 || !same_layer(trace.ops[i - 1], trace.ops[i]);
    if (fresh || (ops_per_group > 0 && i - begins.back() >= ops_per_group)) begins.push_back(i);
  }
  begins.push_back(trace.ops.size());
  return begins;
}

class Planner {
 public:
  Planner(const Problem& problem, const Cut& cut, const std::set<Site>& left)
      : trace_(problem.trace),
        machine_(problem.machine),
        slow_(problem.slow),
        cut_(cut),
        left_(left),
        n_(problem.trace.ops.size()) {}

  std::optional<Plan> make() {
    cut_step();
    measure();
    find_runs();
    occupy_all();
    time_evictions();
    if (!shrink_evictions() || !place_fetches()) return std::nullopt;
    return write();
  }

 private:
  std::uint64_t size(TensorIndex t) const { return rounded(trace_.tensors[t.value].bytes, machine_.granule); }
  std::uint64_t begin_of(std::uint64_t interval) const { return begins_[interval % intervals_] + interval / intervals_ * n_; }

  // 1. Intervals, and who lives inside one layer.
  void cut_step() {
    const std::vector<std::uint64_t> layers = cut_layers(trace_, cut_.ops_per_group);
    std::vector<std::uint64_t> layer_of(n_);
    for (std::size_t k = 0; k + 1 < layers.size(); ++k) {
      if (k % cut_.layers_per_interval == 0) begins_.push_back(layers[k]);
      std::fill(layer_of.begin() + static_cast<std::ptrdiff_t>(layers[k]),
                layer_of.begin() + static_cast<std::ptrdiff_t>(layers[k + 1]), k);
    }
    intervals_ = begins_.size();
    begins_.push_back(n_);
    interval_of_.resize(n_);
    for (std::size_t k = 0; k < intervals_; ++k) {
      std::fill(interval_of_.begin() + static_cast<std::ptrdiff_t>(begins_[k]),
                interval_of_.begin() + static_cast<std::ptrdiff_t>(begins_[k + 1]), k);
    }
    lives_ = lives(trace_);
    uses_ = uses(trace_);
    short_.resize(trace_.tensors.size());
    for (std::size_t t = 0; t < short_.size(); ++t) {
      const Span<OpIndex> life = lives_[t];
      short_[t] =
          !trace_.tensors[t].persistent && life.begin < life.end && layer_of[life.begin.value] == layer_of[life.end.value - 1];
    }
  }

  // 2. RS, the peak of the short-lived and of workspace; and what is left to the others at each op.
  void measure() {
    std::vector<std::uint64_t> brief(n_);
    for (std::size_t i = 0; i < n_; ++i) brief[i] = trace_.ops[i].workspace.value;
    for (std::uint32_t t = 0; t < short_.size(); ++t) {
      if (!short_[t]) continue;
      for (std::uint32_t i = lives_[t].begin.value; i < lives_[t].end.value; ++i) brief[i] += size({t});
    }
    const std::uint64_t capacity = machine_.tiers[0].capacity.value;
    reserved_ = *std::max_element(brief.begin(), brief.end());
    const bool exact = cut_.on_demand || intervals_ == 1;  // nothing is prefetched into what the short-lived leave free
    if (exact) reserved_ = 0;
    limit_.resize(n_);
    for (std::size_t i = 0; i < n_; ++i) {
      const std::uint64_t kept = exact ? brief[i] : reserved_;
      limit_[i] = kept <= capacity ? static_cast<std::int64_t>(capacity - kept) : -1;
    }
    began_.assign(n_ + 1, 0);
    for (std::size_t i = 0; i < n_; ++i) began_[i + 1] = began_[i] + trace_.ops[i].time.value;
  }

  // 3. Need(k) for every interval, as runs.
  void find_runs() {
    for (std::uint32_t t = 0; t < trace_.tensors.size(); ++t) {
      if (short_[t] || uses_[t].empty()) continue;
      if (trace_.tensors[t].persistent) {
        persistent_runs({t});
      } else {
        passing_runs({t});
      }
    }
    const auto order = [](const Run& a, const Run& b) {
      return std::tuple(a.first, b.uses, a.tensor) < std::tuple(b.first, a.uses, b.tensor);
    };
    std::sort(runs_.begin(), runs_.end(), order);
  }

  // Consecutive uses belong to one run while no interval between them does without the tensor.
  std::vector<Run> linear_runs(TensorIndex t) const {
    std::vector<Run> found;
    for (OpIndex use : uses_[t.value]) {
      const bool joined = !found.empty() && interval_of_[use.value] <= interval_of_[found.back().last] + 1;
      if (!joined) found.push_back({.tensor = t, .first = use.value, .fetched = true, .leaves = true});
      found.back().last = use.value;
      ++found.back().uses;
    }
    return found;
  }

  void persistent_runs(TensorIndex t) {
    std::vector<Run> found = linear_runs(t);
    const bool wraps = interval_of_[found.front().first] == 0 && interval_of_[found.back().last] + 1 == intervals_;
    if (wraps && found.size() == 1) {
      found[0].for_ever = true;
      found[0].fetched = found[0].leaves = false;
    } else if (wraps) {
      found.back().last = found.front().last + n_;
      found.back().uses += found.front().uses;
      found.erase(found.begin());
    }
    for (std::size_t r = 0; r < found.size(); ++r) {
      const Run& next = found[(r + 1) % found.size()];
      const std::uint64_t next_first = next.first + (r + 1 == found.size() ? n_ : 0);
      found[r].latest_due = window(next_first);
      runs_.push_back(found[r]);
    }
  }

  void passing_runs(TensorIndex t) {
    std::vector<Run> found = linear_runs(t);
    const std::uint64_t death = lives_[t.value].end.value - 1;
    found.front().fetched = false;
    if (interval_of_[death] == interval_of_[found.back().last]) {
      found.back().last = death;
      found.back().leaves = false;
    }
    for (std::size_t r = 0; r < found.size(); ++r) {
      found[r].latest_due = r + 1 < found.size() ? window(found[r + 1].first) : n_;
      runs_.push_back(found[r]);
    }
  }

  // The op at which the interval before that of `op` begins: from there on it may be fetched.
  std::uint64_t window(std::uint64_t op) const {
    const std::uint64_t interval = interval_of_[op % n_] + (op / n_ + 1) * intervals_;  // one step ahead, to stay positive
    const std::uint64_t begin = begin_of(interval - 1);
    return begin >= n_ ? begin - n_ : 0;
  }

  // 4. The ledger. At first all runs at once: op by op for each would cost runs times ops, and weights live through the whole step.
  void occupy_all() {
    std::vector<std::int64_t> change(2 * n_ + 1);
    for (const Run& run : runs_) {
      const auto bytes = static_cast<std::int64_t>(size(run.tensor));
      change[run.first] += bytes;
      change[run.for_ever ? run.first + n_ : run.last + 1] -= bytes;
    }
    std::vector<std::int64_t> excess(n_);
    for (std::size_t i = 0; i < n_; ++i) excess[i] = -limit_[i];
    std::int64_t now = 0;
    for (std::size_t i = 0; i < 2 * n_; ++i) excess[i % n_] += now += change[i];
    excess_.emplace(excess);
  }
  // Bytes of long-lived tensors during ops first to last, which may lie past the step's end.
  void add(std::uint64_t first, std::uint64_t last, std::int64_t bytes) {
    for (std::uint64_t begin = first; begin <= last;) {
      const std::uint64_t end = std::min(last + 1, (begin / n_ + 1) * n_);
      excess_->add(begin % n_, begin % n_ + (end - begin), bytes);
      begin = end;
    }
  }
  void occupy(std::uint64_t first, std::uint64_t last, std::uint64_t bytes) { add(first, last, static_cast<std::int64_t>(bytes)); }
  void leave(std::uint64_t first, std::uint64_t last, std::uint64_t bytes) { add(first, last, -static_cast<std::int64_t>(bytes)); }
  bool over(std::uint64_t op) const { return excess_->most(op, op + 1) > 0; }
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

  std::int64_t time_at(std::uint64_t op) const { return static_cast<std::int64_t>(op / n_) * began_[n_] + began_[op % n_]; }

  // Evictions are given the time that their link needs, one after the other, as far as the next fetch allows.
  void time_evictions() {
    std::vector<Run*> leaving;
    for (Run& run : runs_) {
      if (run.leaves) leaving.push_back(&run);
    }
    std::sort(leaving.begin(), leaving.end(),
              [](const Run* a, const Run* b) { return std::tuple(a->last, a->tensor) < std::tuple(b->last, b->tensor); });
    const Link* link = machine_.link({0}, slow_);
    VEDETTE_ASSERT(leaving.empty() || link);
    std::int64_t idle = 0;
    for (Run* run : leaving) {
      const Nanoseconds takes = link->latency + transfer_time(trace_.tensors[run->tensor.value].bytes, link->bytes_per_s);
      idle = std::max(idle, time_at(run->last + 1)) + takes.value;
      run->due = run->last + 1;
      const std::uint64_t latest = std::min(run->latest_due, run->last + std::max<std::uint64_t>(n_ - 1, 1));
      while (run->due < latest && time_at(run->due) < idle) ++run->due;
      occupy(run->last + 1, run->due - 1, size(run->tensor));
    }
  }

  // Where evictions at their leisure leave no room for what is needed, they are awaited. False: even then it does not fit.
  bool shrink_evictions() {
    std::vector<std::vector<std::size_t>> begins(n_);  // [op]: runs whose eviction may be under way from there on
    std::set<std::size_t> leaving;     // those of them that may be under way now, in order: all runs for each op would be too many
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

  // 5. Fetches, in order of first use: as early in the interval before as there is room. False: case 2, which must not occur.
  bool place_fetches() {
    for (std::size_t r = 0; r < runs_.size(); ++r) {  // leave_in_place() appends
      if (!runs_[r].fetched) continue;
      const bool left = left_.contains({runs_[r].tensor, {static_cast<std::uint32_t>(runs_[r].first % n_)}});
      if (left && leave_in_place(r)) continue;
      Run& run = runs_[r];
      const std::uint64_t bytes = size(run.tensor), first = run.first + n_;
      const std::uint64_t earliest = std::max(window(first), first - std::min(first, run.most_ahead));
      const std::uint64_t issue = room_from(earliest, first, bytes);
      if (issue == first && !cut_.on_demand) {
        if (!leave_in_place(r)) return false;
        continue;
      }
      occupy(issue, first - 1, bytes);
      run.issue = first - issue;
    }
    return true;
  }

  // Case 2 and the choice "leave" of case 3: the first interval of the run uses the tensor where it lies, the rest is a run of
  // its own.
  bool leave_in_place(std::size_t r) {
    if (!machine_.tiers[slow_.value].addressable || runs_[r].for_ever) return false;
    Run& run = runs_[r];
    const std::uint64_t interval_end = begin_of(interval_of_[run.first % n_] + run.first / n_ * intervals_ + 1);
    std::uint64_t last_in_place = run.first;
    std::optional<std::uint64_t> rest;
    for (std::uint64_t op = run.first; op <= run.last; ++op) {
      if (!std::binary_search(uses_[run.tensor.value].begin(), uses_[run.tensor.value].end(),
                              OpIndex{static_cast<std::uint32_t>(op % n_)}))
        continue;
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

  // 6. The plan.
  Plan write() {
    for (const std::size_t r : gone_) runs_[r].left = true;
    std::erase_if(runs_, [](const Run& run) { return run.left; });
    Plan plan{.home = std::vector<TierIndex>(trace_.tensors.size()), .reserved = {reserved_}};
    for (std::uint32_t t = 0; t < trace_.tensors.size(); ++t) {
      if (trace_.tensors[t].persistent) plan.home[t] = slow_;
    }
    for (const Run& run : runs_) {
      if (trace_.tensors[run.tensor.value].persistent && near_when_step_begins(run)) plan.home[run.tensor.value] = {0};
      write_moves(run, plan);
    }
    const auto order = [&](const Move& a, const Move& b) { return key(a) < key(b); };
    std::stable_sort(plan.moves.begin(), plan.moves.end(), order);
    std::sort(in_place_.begin(), in_place_.end(),
              [](const InPlace& a, const InPlace& b) { return std::tuple(a.op, a.tensor) < std::tuple(b.op, b.tensor); });
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
      plan.moves.push_back(
          {.issue = op(run.last), .due = op(run.due), .extent = whole, .source = {0}, .target = slow_, .verb = Verb::evict});
    }
  }

  // By issue; at one op fetches start before evictions; among fetches what is needed first.
  std::tuple<OpIndex, bool, std::uint64_t> key(const Move& move) const {
    return {move.issue, move.verb != Verb::fetch, (move.due.value + n_ - move.issue.value) % n_};
  }

  const Trace& trace_;
  const Machine& machine_;
  TierIndex slow_;
  Cut cut_;
  const std::set<Site>& left_;
  std::uint64_t n_, intervals_ = 0, reserved_ = 0;
  std::vector<std::uint64_t> begins_, interval_of_;
  std::vector<Span<OpIndex>> lives_;
  std::vector<std::vector<OpIndex>> uses_;
  std::vector<bool> short_;
  std::vector<Run> runs_;
  std::vector<std::size_t> gone_;             // runs that were left in place
  std::vector<std::int64_t> limit_, began_;   // per op: the most bytes of long-lived tensors; nanoseconds
  std::optional<planning::Room> excess_;      // per op: bytes of long-lived tensors beyond the limit
  std::vector<InPlace> in_place_;
};

}  // namespace

std::uint32_t layer_count(const Trace& trace) { return static_cast<std::uint32_t>(cut_layers(trace, 0).size() - 1); }

std::uint32_t longest_layer(const Trace& trace) {
  const std::vector<std::uint64_t> begins = cut_layers(trace, 0);
  std::uint64_t longest = 1;
  for (std::size_t k = 0; k + 1 < begins.size(); ++k) longest = std::max(longest, begins[k + 1] - begins[k]);
  return static_cast<std::uint32_t>(longest);
}

std::pair<Bytes, OpIndex> smallest_fast_tier(const Trace& trace, Bytes granule) {
  std::pair<Bytes, OpIndex> largest;
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    Bytes sum = trace.ops[i].workspace;
    for (TensorIndex t : operands(trace.ops[i])) sum += Bytes{rounded(trace.tensors[t.value].bytes, granule)};
    if (sum > largest.first) largest = {sum, {i}};
  }
  return largest;
}

std::optional<Plan> plan(const Problem& problem, const Cut& cut, const std::set<Site>& left_in_place) {
  return Planner(problem, cut, left_in_place).make();
}

namespace {

// Two links, each working off its moves in order; one where they share a bus.
class Rehearsal {
 public:
  Rehearsal(const Problem& problem, const Plan& plan)
      : problem_(problem),
        plan_(plan),
        done_(plan.moves.size()),
        issued_(problem.trace.ops.size()),
        due_(problem.trace.ops.size()) {
    for (std::size_t m = 0; m < plan.moves.size(); ++m) {
      issued_[plan.moves[m].issue.value].push_back(m);
      due_[plan.moves[m].due.value].push_back(m);
    }
  }

  Nanoseconds time() {
    std::int64_t first_end = 0;
    for (int step = 0; step < 2; ++step) {
      first_end = now_;
      for (std::uint32_t i = 0; i < problem_.trace.ops.size(); ++i) play({i});
    }
    return {now_ - first_end};
  }

 private:
  void play(OpIndex op) {
    for (std::size_t m : due_[op.value]) {
      if (plan_.moves[m].due != plan_.moves[m].issue || plan_.moves[m].verb != Verb::fetch) now_ = std::max(now_, done_[m]);
    }
    for (std::size_t m : issued_[op.value]) {
      if (plan_.moves[m].verb != Verb::fetch) continue;
      start(m);
      if (plan_.moves[m].due == op) now_ = std::max(now_, done_[m]);
    }
    now_ += problem_.trace.ops[op.value].time.value + in_place(op);
    for (std::size_t m : issued_[op.value]) {
      if (plan_.moves[m].verb == Verb::evict) start(m);
    }
  }

  void start(std::size_t m) {
    const Move& move = plan_.moves[m];
    const Link* link = problem_.machine.link(move.source, move.target);
    if (!link) return;
    std::int64_t& idle = idle_[link->shared ? TierIndex{0} : move.source];
    const Nanoseconds takes =
        link->latency + transfer_time(problem_.trace.tensors[move.extent.tensor.value].bytes, link->bytes_per_s);
    idle = std::max(idle, now_) + takes.value;
    done_[m] = idle;
  }

  std::int64_t in_place(OpIndex op) const {
    std::int64_t takes = 0;
    for (const InPlace& each : plan_.in_place) {
      const Link* link = each.op == op ? problem_.machine.link(each.tier, {0}) : nullptr;
      if (link) takes += transfer_time(problem_.trace.tensors[each.tensor.value].bytes, link->bytes_per_s).value;
    }
    return takes;
  }

  const Problem& problem_;
  const Plan& plan_;
  std::vector<std::int64_t> done_;
  std::vector<std::vector<std::size_t>> issued_, due_;  // [op]: moves
  std::map<TierIndex, std::int64_t> idle_;
  std::int64_t now_ = 0;
};

}  // namespace

Nanoseconds predicted_time(const Problem& problem, const Plan& plan) { return Rehearsal(problem, plan).time(); }

}  // namespace vedette::sentinel
