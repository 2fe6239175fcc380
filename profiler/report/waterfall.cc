// The way from the bound to the shown step, by cause.
//
// The step is cut into its operators' least times, their time beyond those, its stalls and its faults. A stall ends
// with the move that it waits for. While bytes are written it waits for the frame that a write frees: always in an
// allocation, and before an op as long as no fetch runs. The bound holds the operators' least times and waits that no
// plan avoids; those are taken off the causes, transfers first, so that all parts add up to the step.
#include <algorithm>
#include <map>

#include "profiler/report/report.h"

namespace vedette::report {

namespace {

using Interval = Span<Nanoseconds>;

class Times {  // a set of moments: intervals that are ascending and apart
 public:
  explicit Times(std::vector<Interval> any) {
    std::sort(any.begin(), any.end());
    for (const Interval& each : any) {
      if (each.begin >= each.end) continue;
      if (!all_.empty() && each.begin <= all_.back().end)
        all_.back().end = std::max(all_.back().end, each.end);
      else
        all_.push_back(each);
    }
  }
  Nanoseconds within(Interval window) const {
    Nanoseconds sum;
    auto at = std::upper_bound(all_.begin(), all_.end(), window.begin,
                               [](Nanoseconds t, const Interval& each) { return t < each.end; });
    for (; at != all_.end() && at->begin < window.end; ++at)
      sum += std::min(at->end, window.end) - std::max(at->begin, window.begin);
    return sum;
  }
  const std::vector<Interval>& all() const noexcept { return all_; }

 private:
  std::vector<Interval> all_;
};

// Moments of `a` that are not in `b`.
Times without(const Times& a, const Times& b) {
  std::vector<Interval> left;
  auto hole = b.all().begin();
  for (Interval rest : a.all()) {
    while (hole != b.all().end() && hole->end <= rest.begin) ++hole;
    for (auto at = hole; at != b.all().end() && at->begin < rest.end; ++at) {
      left.push_back({rest.begin, at->begin});
      rest.begin = at->end;
    }
    left.push_back(rest);
  }
  return Times(std::move(left));
}

class Accounts {
 public:
  explicit Accounts(const Run& run) : trace_(run.shown_profile()->trace) {}

  void add(Lost cause, std::uint32_t op, Nanoseconds time) {
    if (time.value <= 0) return;
    Nanoseconds& layer = layers_[index(cause)][op < trace_.ops.size() ? layer_of(trace_.ops[op]) : -1];
    layer = std::min(most, layer + std::min(most, time));
    sum_[index(cause)] = std::min(most, sum_[index(cause)] + std::min(most, time));
  }
  Nanoseconds sum(Lost cause) const { return sum_[index(cause)]; }

  LostTime account(Lost cause) const {
    LostTime lost{.cause = cause, .time = sum(cause)};
    for (const auto& [layer, time] : layers_[index(cause)]) lost.layers.push_back({layer, time});
    std::stable_sort(lost.layers.begin(), lost.layers.end(),
                     [](const LayerTime& a, const LayerTime& b) { return a.time > b.time; });
    return lost;
  }

 private:
  static constexpr Nanoseconds most{std::int64_t{1} << 59};  // a damaged file may hold any times: sums stay numbers
  static std::size_t index(Lost cause) { return static_cast<std::size_t>(cause); }
  const Trace& trace_;
  std::map<std::int64_t, Nanoseconds> layers_[5];
  Nanoseconds sum_[5];
};

Times moves_of(const Run& run, bool fetches) {
  std::vector<Interval> times;
  for (const MoveRow& move : run.moves)
    if (move.verb != "drop" && (move.verb == "fetch") == fetches) times.push_back({move.started, move.ended});
  return Times(std::move(times));
}

void add_stalls(Accounts& accounts, const Run& run, const Times& fetches, const Times& writes) {
  const Times writes_alone = without(writes, fetches);
  for (const StallRow& stall : run.stalls) {
    const Interval when{stall.began, std::max(stall.began, stall.ended)};
    const Nanoseconds writing = (stall.in_allocation ? writes : writes_alone).within(when);
    accounts.add(Lost::write, stall.op, writing);
    accounts.add(stall.in_allocation ? Lost::no_room : Lost::late_fetch, stall.op, when.end - when.begin - writing);
  }
}

// By op: the time in which some thread waited for a fault, and no op stalled.
std::vector<Nanoseconds> fault_times(const Run& run) {
  std::vector<Interval> stalled;
  for (const StallRow& stall : run.stalls) stalled.push_back({stall.began, stall.ended});
  std::vector<Interval> faulted;
  for (const FaultRow& fault : run.faults) faulted.push_back({fault.began, fault.ended});
  const Times faults = without(Times(std::move(faulted)), Times(std::move(stalled)));
  std::vector<Nanoseconds> times;
  Nanoseconds last = run.shown_step()->began;
  for (const OpRow& op : run.ops) {
    times.push_back(faults.within({last, std::max(last, op.ended)}));
    last = std::max(last, op.ended);
  }
  return times;
}

Nanoseconds add_operators(Accounts& accounts, const Run& run, const Trace& least, const Times& moves) {
  const auto took = own_times(run.shown_step()->began, run.ops, run.stalls);
  const auto faulted = fault_times(run);
  Nanoseconds last = run.shown_step()->began, beside_moves;
  for (std::uint32_t i = 0; i < run.ops.size(); ++i) {
    const Nanoseconds in_faults = std::min(faulted[i], std::max(Nanoseconds{}, took[i] - least.ops[i].time));
    const Nanoseconds longer = took[i] - least.ops[i].time - in_faults;
    accounts.add(Lost::fault, i, in_faults);
    accounts.add(Lost::operators, i, longer);
    if (longer.value > 0 && moves.within({last, run.ops[i].ended}).value > 0) beside_moves += longer;
    last = std::max(last, run.ops[i].ended);
  }
  return beside_moves;
}

}  // namespace

std::string_view name_of(Lost cause) noexcept {
  constexpr std::string_view names[] = {"operators", "late fetch", "no room", "write", "fault"};
  return names[static_cast<std::size_t>(cause)];
}

Waterfall waterfall_of(const Run& run, const Headline& headline, const Noise& noise) {
  Waterfall fall;
  const bool whole = run.follows_profile() && run.shown_step() != nullptr && run.origin.imported.empty() &&
                     !run.ops.empty() && run.fastest.size() == run.ops.size() && headline.bound && headline.compute;
  if (!whole) return fall;
  Accounts accounts(run);
  const Times fetches = moves_of(run, true), writes = moves_of(run, false);
  std::vector<Interval> both = fetches.all();
  both.insert(both.end(), writes.all().begin(), writes.all().end());
  add_stalls(accounts, run, fetches, writes);
  fall.beside_moves = add_operators(accounts, run, steady_trace(run), Times(std::move(both)));
  fall.known = true;
  fall.processor_wait = noise.processor_wait;
  fall.bound = *headline.bound;
  fall.step = run.shown_step()->time();
  // Time after the last op, and the rest that contradicting records leave over.
  const auto sum = [&] {
    Nanoseconds all = *headline.compute;
    for (const LostTime& lost : fall.lost) all += lost.time;
    return all;
  };
  constexpr Lost order[] = {Lost::operators, Lost::late_fetch, Lost::no_room, Lost::write, Lost::fault};
  accounts.add(Lost::operators, ~0u, [&] {
    Nanoseconds rest = fall.step - *headline.compute;
    for (const Lost cause : order) rest -= accounts.sum(cause);
    return rest;
  }());
  for (const Lost cause : order) fall.lost.push_back(accounts.account(cause));
  Nanoseconds avoidable_by_none = sum() - fall.step + (fall.bound - *headline.compute);
  for (const Lost cause : {Lost::late_fetch, Lost::write, Lost::no_room, Lost::operators, Lost::fault}) {
    LostTime& lost = fall.lost[static_cast<std::size_t>(cause)];
    lost.in_bound = std::clamp(avoidable_by_none, Nanoseconds{}, lost.time);
    lost.time -= lost.in_bound;
    avoidable_by_none -= lost.in_bound;
  }
  fall.ahead = std::max(Nanoseconds{}, avoidable_by_none);
  return fall;
}

}  // namespace vedette::report
