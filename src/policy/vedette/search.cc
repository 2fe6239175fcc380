// The order of the tries: prices of recomputation, knobs, shares of memory and tiers, around the best, at random; then
// covers.
#include "policy/vedette/search.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/given_up.h"
#include "base/readable.h"
#include "base/time_limit.h"
#include "policy/canvas/op_times.h"
#include "policy/vedette/around.h"
#include "policy/vedette/choice.h"
#include "policy/vedette/cover.h"
#include "policy/vedette/knobs.h"
#include "policy/vedette/layout.h"
#include "policy/vedette/memo.h"
#include "policy/vedette/recompute.h"
#include "policy/vedette/slow_room.h"
#include "policy/vedette/tiers.h"
#include "policy/vedette/variants.h"
#include "sim/bound.h"
#include "vedette/check.h"

namespace vedette::planning {
namespace {

constexpr std::size_t most_work = 600'000, most_work_of_knobs = 80'000;  // tries times ops
// from here on a try takes longer than in proportion, and gets less: 10,000 ops plan in a second
constexpr std::size_t many_ops = 4'000;
// Changes at random that all won less than a 10,000th: so many tries times ops, and tries, end the search.
constexpr std::size_t work_for_nothing = 200'000, least_patience = 40, most_patience = 500;
constexpr std::int64_t least_gain = 10'000;
constexpr std::size_t most_failed_covers = 24;
// The bound takes as long as some tries, and is asked for once so many did not reach the ops' own time.
constexpr std::size_t tries_before_bound = 40;
// Of a step that is less above the bound than this part of it, the search takes less in proportion, to a sixth. Where a
// tier in between is full there is more to choose, and it takes so many times as much.
constexpr std::int64_t worth_all_work = 100;
constexpr std::size_t least_share_of_work = 6;
constexpr std::size_t work_of_full_tiers = 3;
constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

struct Best {  // of the tries so far
  bool found = false;
  bool overflows = false;  // the nearest slower tier does not hold all that leaves
  std::int64_t cost = 0;
  std::uint64_t fingerprint = 0;  // of its variant
  Choice choice;
  Found kept;
};

class Search {
 public:
  Search(const Trace& trace, const Machine& machine, const Setting& setting, const Features& features,
         const SearchRules& rules)
      : trace_(trace),
        machine_(machine),
        setting_(setting),
        features_(features),
        rules_(rules),
        step_ns_(time_of_ops(trace).value),
        most_work_(rules.knobs_only    ? most_work_of_knobs
                   : rules.little_left ? work_of(trace) / least_share_of_work
                                       : work_of(trace)),
        changes_(step_ns_, setting.budget, machine.can_recompute && features.recomputing),
        variants_(trace, machine, setting, features) {}

  Result<Found> run();

 private:
  bool consider(Choice choice);
  void consider(const RecomputeRule& rule, const Knobs& knobs) {
    consider({.rule = rule, .knobs = knobs, .share = best_.choice.share, .far = best_.choice.far});
  }
  struct Island {  // a begin of the search
    Best best;
    RandomChanges changes;
    std::size_t failed = 0, changed = 0;  // changes at random, in a row that won nothing; all
    Choice now;                           // gone on from
    std::int64_t cost = 0;
    std::array<std::int64_t, 8> costs{};  // of what was gone on from, in a ring
  };
  double round_trip_ns() const;
  void begin_by_bytes(std::int64_t least_gap, std::uint32_t memory);
  void begin_by_dual();
  void search_knobs();
  void around(Island& island);
  void at_random_by_turns(std::size_t patience);
  void search_kept();
  void search_at_random(Island& island, std::size_t most);
  template <class Seeds>
  void begin(const TierShares& far, const Seeds& seeds);
  void begin_everywhere();
  void keep(std::size_t most, std::int64_t percent);
  bool spent() const {
    if (MayBeGivenUp::is_given_up()) return true;
    return (best_.found || begun_) && (done_ || tries_ * trace_.ops.size() > most_work_ || TimeLimit::is_over());
  }
  static std::size_t work_of(const Trace& trace) { return trace.ops.size() > many_ops ? most_work / 4 : most_work; }
  void see_whether_done();
  void search_covers();
  void search_everything();

  const Trace& trace_;
  const Machine& machine_;
  const Setting& setting_;
  const Features features_;
  const SearchRules rules_;
  const std::int64_t step_ns_;
  std::size_t tries_ = 0, all_tries_ = 0;
  std::int64_t cost_ = 0;              // of the latest try
  std::int64_t accepted_ = 0;          // the search goes on from a plan that costs no more
  std::size_t most_work_ = 0;          // tries times ops
  bool begun_ = false;                 // some plan was found
  bool done_ = false;                  // the best one is good enough
  std::optional<std::int64_t> bound_;  // of a step
  RandomChanges changes_;
  Variants variants_;
  std::set<std::uint64_t> tried_;  // fingerprints
  Memo memo_;
  Best best_;
  std::vector<Island> islands_;
};

// True: better than all before.
bool Search::consider(Choice choice) {
  if (spent()) return false;
  choice.knobs = features_.of(choice.knobs);
  Variant& v = variants_.of(choice.rule, best_.fingerprint);
  const std::uint64_t of_stays = choice.cover ? fingerprint_of(*choice.cover) : fingerprint_of(choice.knobs);
  if (!tried_.insert(mixed(mixed(v.fingerprint, choice.share), mixed(of_stays, fingerprint_of(choice.far)))).second)
    return false;
  if (best_.found && v.ops_ns >= best_.cost) return false;  // with recomputation, if it never waited
  ++tries_;
  if (++all_tries_ == tries_before_bound + 1 && best_.found) see_whether_done();
  variants_.cut(v);
  const Trace& trace = v.parts.trace;
  const Setting& setting = variants_.setting(choice.share);
  Memo::Stays gaps = memo_.laid_out(mixed(mixed(v.fingerprint, choice.share), of_stays), [&] {
    return lay_out(trace, v.uses, v.costs, setting,
                   choice.cover ? cover(trace, v.uses, v.costs, setting, *choice.cover)
                                : sweep(trace, v.uses, v.costs, setting, choice.knobs));
  });
  if (!gaps) return false;
  std::vector<Stay> stays = rules_.knobs_only ? *gaps : std::vector<Stay>{};
  const Spread spread = spread_over_tiers(trace, machine_, setting_, choice.far, *gaps);
  if (!spread.fits && best_.found) return false;  // by its estimate; without a plan the simulation decides
  fetch_far_early(trace, v.costs, machine_, setting_, *gaps);
  if (features_.issuing_early) fetch_early(trace, v.costs, setting_, step_ns_ / most_lead, 0, *gaps);
  if (!fit_slow_tier(trace, v.costs, machine_, setting_, *gaps)) return false;
  const std::int64_t longest = best_.found ? std::max(best_.cost, accepted_) : never;
  Memo::Simulated& simulated = memo_.simulated(v.fingerprint, *gaps);
  if (best_.found && simulated.known(longest) && simulated.cost >= best_.cost) {
    cost_ = simulated.cost;
    return false;
  }
  Plan plan = plan_of(trace, setting_, *gaps);
  const PlanCost plan_cost(trace, v.step, machine_, rules_.link_cost);
  const auto replayed = plan_cost.simulate(plan, longest);
  simulated = {.cost = replayed ? plan_cost.cost(*replayed) : never, .longest = longest};
  if (!replayed) return false;
  const std::int64_t cost = cost_ = simulated.cost;
  if (best_.found && cost >= best_.cost) return false;
  Plan whole = plan_of_origin(trace_, v.recomputed, joined(v.recomputed.trace, v.parts, plan));
  // where they fit by the estimate, they fit by the judge's count
  if (rules_.judged && !spread.fits && check(trace_, machine_, whole)) return false;
  best_.found = begun_ = true;
  best_.overflows = spread.overflows;
  best_.cost = cost;
  best_.choice = choice;
  best_.fingerprint = v.fingerprint;
  best_.kept = {.plan = std::move(whole),
                .step = replayed->measured.time,
                .knobs = choice.knobs,
                .covers = choice.cover.has_value(),
                .stays = std::move(stays)};
  if (rules_.knobs_only) best_.kept.plan_of_parts = std::move(plan);
  see_whether_done();
  for (const Recomputation& each : v.recomputed.recomputations)
    best_.kept.recomputing += variants_.recomputer().time_of(each.producer);
  return true;
}

void Search::see_whether_done() {
  const std::int64_t reached = rules_.moves_count ? best_.cost : best_.kept.step.value;
  if (!bound_ && all_tries_ > tries_before_bound && !done_) bound_ = sim::coarse_bound(trace_, machine_).value;
  const std::int64_t least = bound_.value_or(step_ns_), left = reached - least;
  done_ = done_ || good_enough({reached}, {least});
  if (!bound_ || rules_.knobs_only || rules_.little_left) return;
  const double share =
      std::clamp(static_cast<double>(left) * static_cast<double>(worth_all_work) / static_cast<double>(least),
                 1.0 / static_cast<double>(least_share_of_work), 1.0);
  most_work_ = static_cast<std::size_t>(
      static_cast<double>(work_of(trace_) * (best_.overflows ? work_of_full_tiers : 1)) * share);
}

// A byte that is recomputed spares both links one byte: up to that price it can pay.
double Search::round_trip_ns() const {
  return (setting_.read_bytes_per_s == 0 ? 0 : 1e9 / static_cast<double>(setting_.read_bytes_per_s)) +
         (setting_.write_bytes_per_s == 0 ? 0 : 1e9 / static_cast<double>(setting_.write_bytes_per_s));
}

// Combinations that are far apart, of prices and knobs, for two shares of the memory: with much of it plans become good
// by other knobs.
void Search::begin_by_bytes(std::int64_t least_gap, std::uint32_t memory) {
  const auto knobs = knobs_apart(step_ns_);
  struct Seed {
    double share;
    std::uint32_t less, depth;
    std::size_t knobs;
  };
  for (const Seed& seed : {Seed{0.3, 0, 16, 1}, {0.1, 10, 16, 2}, {1.0, 0, 16, 0}, {0.3, 10, 2, 0}, {0.03, 0, 3, 3}}) {
    RecomputeRule rule = uniform(round_trip_ns() * seed.share, seed.depth);
    rule.least_gap_ns = least_gap;
    consider({.rule = rule, .knobs = knobs[seed.knobs], .share = memory - seed.less, .far = best_.choice.far});
  }
}

// Moves have to fit at every op, and the dual's at one op of each stretch only: so it is asked about less memory, too.
void Search::begin_by_dual() {
  const auto knobs = knobs_apart(step_ns_);
  const auto seed = [&](std::uint32_t percent, bool leaves_room, std::uint32_t memory, const Knobs& each, bool covers) {
    RecomputeRule rule = uniform(1, 16);
    rule.shares_at = percent;
    rule.leaves_room = leaves_room;
    Choice choice{.rule = rule, .knobs = each, .share = memory};
    if (covers) choice.cover = LinkPrices{};
    consider(choice);
  };
  for (const std::uint32_t percent : {100U, 90U, 80U, 70U, 60U}) {
    seed(percent, true, 100, knobs[1], false);
    seed(percent, true, 100, knobs[0], false);
    seed(percent, true, 100, knobs[0], true);
  }
  if (!best_.found) return;
  for (const Choice choice = best_.choice; const std::uint32_t percent : {choice.rule.shares_at, 100U, 80U, 60U})
    seed(percent, false, 100, choice.knobs, choice.cover.has_value());
}

void Search::search_knobs() {
  try_knobs(
      step_ns_, setting_.budget, [this](const Knobs& knobs) { consider(best_.choice.rule, knobs); },
      [this] { return best_.choice.knobs; });
}

// Where both directions share a bus, operands of the optimizer's last ops cost most: each byte comes and goes beside
// ops that take little longer than its transfer. Then they may stay, and operands of others move instead. The shares
// are of fast memory.
void Search::search_kept() {
  if (!setting_.shared || machine_.habits.early_fetches || !best_.found) return;
  for (const std::int64_t percent : {0, 5, 10, 15, 20, 25, 30, 40, 50, 60, 75}) {
    Choice choice = best_.choice;
    choice.knobs.kept = setting_.budget / 100 * percent;
    consider(choice);
  }
}

// A change is also gone on from where it is no worse than what some changes ago was gone on from (Burke, Bykov, "The
// late acceptance hill-climbing heuristic", 2017): single decisions depend on each other.
void Search::search_at_random(Island& island, std::size_t most) {
  best_ = std::move(island.best);
  std::swap(changes_, island.changes);
  if (best_.overflows && best_.choice.far.rule != TierShares::Rule::longest_first) changes_.deal();
  if (island.costs[0] == 0) {
    island.costs.fill(best_.cost);
    island.now = best_.choice;
    island.cost = best_.cost;
  }
  for (std::size_t k = 0; k < most && !spent(); ++k) {
    const std::int64_t before = best_.cost;
    Choice choice = changes_.apply(island.now);
    std::int64_t& late = island.costs[island.changed++ % island.costs.size()];
    accepted_ = std::max(late, island.cost);
    cost_ = never;
    const bool better = consider(choice) && best_.cost < before - before / least_gain;
    if (cost_ <= accepted_ && cost_ != never) island.now = choice, island.cost = cost_;
    late = island.cost;
    island.failed = better ? 0 : island.failed + 1;
  }
  accepted_ = 0;
  std::swap(changes_, island.changes);
  island.best = std::move(best_);
}

// The same with stays that are a cover, from what the best one recomputes and its tiers; then the best of both stays.
void Search::search_covers() {
  if (!best_.found || !features_.covering || done_) return;
  const Best before = std::move(best_);
  best_ = {.choice = before.choice};
  best_.choice.cover = LinkPrices{};
  if (rules_.knobs_only) tries_ = 0;
  for (const std::uint32_t share : {before.choice.share, all_of_it}) {
    Choice choice = best_.choice;
    choice.share = share;
    consider(choice);
  }
  const bool promising = best_.found && best_.cost <= before.cost + before.cost / 50;
  const std::size_t most = rules_.knobs_only || promising ? most_failed_covers : 0;
  for (std::size_t failed = 0; !spent() && failed < most;)
    failed = consider(changes_.apply(best_.choice)) ? 0 : failed + 1;
  if (!best_.found || before.cost <= best_.cost) best_ = before;
}

template <class Seeds>
void Search::begin(const TierShares& far, const Seeds& seeds) {
  best_ = {.choice = {.share = all_of_it, .far = far}};
  seeds();
  if (best_.found) islands_.push_back({.best = std::move(best_), .changes = changes_});
}

void Search::begin_everywhere() {
  const bool recomputes = machine_.can_recompute && features_.recomputing;
  const auto moves_alone = [&] {
    for (const Knobs& each : knobs_apart(step_ns_)) consider(uniform(-1, 0), each);
  };
  begin({}, moves_alone);
  if (islands_.empty()) begin({}, [&] { search_knobs(); });
  if (recomputes) {
    for (const std::int64_t least_gap : {std::int64_t{0}, step_ns_ / 64}) {
      begin({}, [&] { begin_by_bytes(least_gap, 100); });
      begin({}, [&] { begin_by_bytes(least_gap, 70); });
    }
  }
  keep(islands_.size(), 100);
  if (islands_.empty()) return;
  if (islands_[0].best.overflows) {
    if (recomputes) {
      begin({}, [&] { begin_by_bytes(step_ns_ / 32, 95); });
      begin({}, [&] { begin_by_bytes(step_ns_ / 16, 85); });
    }
    for (const TierShares& far : ways_of_dealing()) {
      if (!recomputes) begin(far, moves_alone);
      if (recomputes) begin(far, [&] { begin_by_bytes(step_ns_ / 64, 95); });
    }
  } else if (recomputes && trace_.ops.size() <= many_ops) {
    begin({}, [&] { begin_by_dual(); });
  }
}

// The best islands, no more than some percent behind the first.
void Search::keep(std::size_t most, std::int64_t percent) {
  std::stable_sort(islands_.begin(), islands_.end(),
                   [](const Island& a, const Island& b) { return a.best.cost < b.best.cost; });
  while (islands_.size() > most ||
         (islands_.size() > 1 && islands_.back().best.cost > islands_[0].best.cost / 100 * (100 + percent)))
    islands_.pop_back();
}

// Begins that differ in what is recomputed, and in how stays are dealt between full tiers. The best of them are
// searched on: once around each, then at random by turns; and so on from the best one, until it gains nothing.
void Search::search_everything() {
  begin_everywhere();
  if (islands_.empty()) return;
  const bool full = islands_[0].best.overflows;  // ways of dealing show their worth later
  keep(full ? 9 : 4, full ? 30 : 12);
  const std::size_t all = std::max<std::size_t>(trace_.ops.size(), 1);
  const std::size_t patience = std::clamp(work_for_nothing / all, least_patience, most_patience) * (full ? 2 : 1);
  if (features_.searching) {
    for (Island& each : islands_) around(each);
    keep(3, full ? 8 : 5);
    at_random_by_turns(patience);
  }
  best_ = std::move(islands_[0].best);
  for (std::int64_t before = never; features_.searching && !spent() && best_.cost < before - before / least_gain * 5;) {
    before = best_.cost;
    islands_.clear();
    islands_.push_back({.best = std::move(best_), .changes = changes_});
    around(islands_[0]);
    at_random_by_turns(patience);
    best_ = std::move(islands_[0].best);
  }
  // A session's plan is fitted to it between two tiers, where covers are tried.
  if (features_.searching && !machine_.habits.early_fetches && trace_.ops.size() <= many_ops) search_covers();
}

void Search::around(Island& island) {
  best_ = std::move(island.best);
  const auto try_choice = [this](Choice choice) { consider(std::move(choice)); };
  const auto best = [this] { return best_.choice; };
  try_around(step_ns_, setting_.budget, try_choice, best);
  search_kept();
  if (best_.overflows) try_shares_of_tiers(try_choice, best);
  island.best = std::move(best_);
}

void Search::at_random_by_turns(std::size_t patience) {
  for (Island& each : islands_) each.changes.widen();
  while (islands_[0].failed < patience && !spent()) {
    for (Island& each : islands_) search_at_random(each, &each == &islands_[0] ? 16 : 8);
    keep(3, 4);
    std::erase_if(islands_, [&](const Island& each) { return &each != &islands_[0] && each.failed >= patience / 2; });
  }
}

Result<Found> Search::run() {
  if (rules_.knobs_only) {
    search_knobs();
    search_covers();
  } else {
    search_everything();
  }
  if (!best_.found) {
    const auto readable = [](std::int64_t bytes) { return readable_exactly({static_cast<std::uint64_t>(bytes)}); };
    std::string message = "no plan was found for " + readable(setting_.budget) + " of fast memory";
    if (may_fill(trace_, machine_, setting_)) {
      const Tier& slow = machine_.tiers[setting_.slow.value];
      message += " and " + readable_exactly(slow.capacity) + " of '" + slow.name + "'; give one of them more";
    }
    return Error{Cause::infeasible, message};
  }
  Variant& kept = variants_.of(best_.choice.rule, best_.fingerprint);
  variants_.cut(kept);
  best_.kept.recomputed = variants_.recomputer().apply(kept.decided);
  best_.kept.parts = kept.parts;
  return std::move(best_.kept);
}

}  // namespace

Result<Found> search(const Trace& trace, const Machine& machine, const Setting& setting, const Features& features,
                     const SearchRules& rules) {
  return Search(trace, machine, setting, features, rules).run();
}

}  // namespace vedette::planning
