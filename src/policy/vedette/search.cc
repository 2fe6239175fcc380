// The order of the tries: prices of recomputation, knobs, shares of memory and tiers, around the best, at random; then
// covers.
#include "policy/vedette/search.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/given_up.h"
#include "base/readable.h"
#include "base/time_limit.h"
#include "policy/canvas/op_times.h"
#include "policy/vedette/choice.h"
#include "policy/vedette/cover.h"
#include "policy/vedette/knobs.h"
#include "policy/vedette/layout.h"
#include "policy/vedette/recompute.h"
#include "policy/vedette/tiers.h"
#include "policy/vedette/variants.h"
#include "sim/bound.h"

namespace vedette::planning {
namespace {

constexpr std::size_t most_work = 900'000, most_work_of_knobs = 80'000;  // tries times ops
// from here on a try takes longer than in proportion, and gets less: 10,000 ops plan in a second
constexpr std::size_t many_ops = 4'000;
// changes at random that all were for nothing: large ones, and small ones around finds of large ones
constexpr std::size_t most_failures = 60, most_fine_failures = 300;
constexpr std::size_t most_failed_covers = 100, most_failed_beside_knobs = 24;
// A plan that is no more than a thousandth above the bound is good enough. The bound takes as long as some tries, and
// is asked for once so many did not reach the ops' own time.
constexpr std::int64_t good_enough = 1'000;
constexpr std::size_t tries_before_bound = 40;

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
        changes_(step_ns_, machine.can_recompute && features.recomputing),
        variants_(trace, machine, setting, features) {}

  Result<Found> run();

 private:
  bool consider(Choice choice);
  void consider(const RecomputeRule& rule, const Knobs& knobs) {
    consider({.rule = rule, .knobs = knobs, .share = best_.choice.share, .far = best_.choice.far, .cover = {}});
  }
  void search_prices();
  void search_dual(const Knobs& far, const Knobs& near);
  bool search_kept();
  bool search_gaps();
  bool search_tiers();
  void search_knobs();
  void search_from(std::uint32_t share, const TierShares& far);
  bool search_shares();
  bool search_around();
  void search_at_random();
  void search_finely();
  void search_on();
  bool spent() const {
    const std::size_t most = rules_.knobs_only              ? most_work_of_knobs
                             : trace_.ops.size() > many_ops ? most_work / 6
                                                            : most_work;
    if (MayBeGivenUp::is_given_up()) return true;
    return best_.found && (done_ || tries_ * trace_.ops.size() > most || TimeLimit::is_over());
  }
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
  bool done_ = false;                  // the best one is good enough
  std::optional<std::int64_t> bound_;  // of a step
  RandomChanges changes_;
  bool by_dual_ = false;    // rules are by the dual's shares
  bool with_gaps_ = false;  // whether gaps that are short are looked at
  Variants variants_;
  std::set<std::uint64_t> tried_;  // fingerprints
  Best best_;
};

// True: better than all before.
bool Search::consider(Choice choice) {
  if (spent()) return false;
  choice.knobs = features_.of(choice.knobs);
  const Variant& v = variants_.of(choice.rule, choice.share, best_.fingerprint);
  const std::uint64_t of_stays = choice.cover ? fingerprint_of(*choice.cover) : fingerprint_of(choice.knobs);
  if (!tried_.insert(mixed(v.fingerprint, mixed(of_stays, fingerprint_of(choice.far)))).second) return false;
  ++tries_;
  if (++all_tries_ == tries_before_bound + 1 && best_.found) see_whether_done();
  const Trace& trace = v.parts.trace;
  const Setting& setting = variants_.setting(choice.share);
  auto gaps = lay_out(
      trace, v.uses, setting,
      choice.cover ? cover(trace, v.uses, setting, *choice.cover) : sweep(trace, v.uses, setting, choice.knobs));
  if (!gaps) return false;
  std::vector<Stay> stays = rules_.knobs_only ? *gaps : std::vector<Stay>{};
  const Spread spread = spread_over_tiers(trace, machine_, setting_, choice.far, *gaps);
  if (!spread.fits && best_.found) return false;  // by its estimate; without a plan the simulation decides
  fetch_far_early(trace, v.uses, machine_, setting_, *gaps);
  if (features_.issuing_early) fetch_early(trace, v.uses, setting_, step_ns_ / most_lead, 0, *gaps);
  Plan plan = plan_of(trace, setting_, *gaps);
  const PlanCost plan_cost(trace, v.step, machine_, rules_.link_cost);
  const auto replayed = plan_cost.simulate(plan);
  if (!replayed) return false;
  const std::int64_t cost = plan_cost.cost(*replayed);
  if (best_.found && cost >= best_.cost) return false;
  best_.found = true;
  best_.overflows = spread.overflows;
  best_.cost = cost;
  best_.choice = choice;
  best_.fingerprint = v.fingerprint;
  best_.kept = {.plan = plan_of_origin(trace_, v.recomputed, joined(v.recomputed.trace, v.parts, plan)),
                .step = replayed->measured.time,
                .recomputing = {},
                .knobs = choice.knobs,
                .covers = choice.cover.has_value(),
                .recomputed = {},
                .parts = {},
                .stays = std::move(stays),
                .plan_of_parts = {}};
  if (rules_.knobs_only) best_.kept.plan_of_parts = std::move(plan);
  see_whether_done();
  for (const Recomputation& each : v.recomputed.recomputations)
    best_.kept.recomputing += variants_.recomputer(choice.share).time_of(each.producer);
  return true;
}

void Search::see_whether_done() {
  const std::int64_t reached = rules_.moves_count ? best_.cost : best_.kept.step.value;
  if (!bound_ && all_tries_ > tries_before_bound && !done_) bound_ = sim::coarse_bound(trace_, machine_).value;
  const std::int64_t least = bound_.value_or(step_ns_);
  done_ = reached <= least + least / good_enough;
}

// A byte that is recomputed spares both links one byte: up to that price it can pay.
void Search::search_prices() {
  const double round_trip =
      (setting_.read_bytes_per_s == 0 ? 0 : 1e9 / static_cast<double>(setting_.read_bytes_per_s)) +
      (setting_.write_bytes_per_s == 0 ? 0 : 1e9 / static_cast<double>(setting_.write_bytes_per_s));
  const Knobs far{.horizon_ns = step_ns_ / 16, .clean_ahead_ns = -1},
      near{.horizon_ns = 0, .clean_ahead_ns = step_ns_ / 32};
  if (by_dual_) return search_dual(far, near);
  consider(uniform(-1, 0), far);
  consider(uniform(-1, 0), near);
  if (!machine_.can_recompute || !features_.recomputing) return;
  for (const double share : {0.03, 0.1, 0.3, 0.6, 1.0, 2.0}) {
    for (const std::uint32_t depth : {16U, 3U}) {
      consider(uniform(round_trip * share, depth), far);
      consider(uniform(round_trip * share, depth), near);
    }
    RecomputeRule tight = uniform(round_trip * share, 16);
    tight.leaves_room = false;
    consider(tight, far);
    consider(tight, near);
  }
  if (best_.choice.rule.ns_per_byte[0] <= 0) return;
  for (const double factor : {0.6, 0.8, 1.25, 1.6}) {
    RecomputeRule rule = best_.choice.rule;
    rule.ns_per_byte.fill(rule.ns_per_byte[0] * factor);
    consider(rule, best_.choice.knobs);
  }
  for (const std::uint32_t depth : {0U, 1U, 8U, 64U}) {
    RecomputeRule rule = best_.choice.rule;
    rule.depth = depth;
    consider(rule, best_.choice.knobs);
  }
  if (with_gaps_) search_gaps();
  for (const double factor : {0.0, 0.4, 2.5, 0.7}) {
    for (std::size_t segment = 0; segment < RecomputeRule::segments; ++segment) {
      RecomputeRule rule = best_.choice.rule;
      rule.ns_per_byte[segment] *= factor;
      consider(rule, best_.choice.knobs);
    }
  }
}

// Moves have to fit at every op, and the dual's at one op of each stretch only: so it is asked about less memory, too.
void Search::search_dual(const Knobs& far, const Knobs& near) {
  for (const std::uint32_t percent : {100U, 90U, 80U, 70U, 60U}) {
    for (const bool leaves_room : {true, false}) {
      RecomputeRule rule = uniform(1, 16);
      rule.shares_at = percent;
      rule.leaves_room = leaves_room;
      consider(rule, far);
      consider(rule, near);
      consider({.rule = rule, .knobs = near, .share = best_.choice.share, .far = {}, .cover = LinkPrices{}});
    }
  }
}

// A tensor that backward uses several times within a few ops need not be recomputed for each of them.
bool Search::search_gaps() {
  bool better = false;
  if (!recomputes(best_.choice.rule)) return false;
  for (const std::int64_t part : {1024, 256, 64, 16}) {
    Choice choice = best_.choice;
    choice.rule.least_gap_ns = step_ns_ / part;
    better |= consider(choice);
  }
  return better;
}

// The shares of the far tier, stretch by stretch.
bool Search::search_tiers() {
  using Rule = TierShares::Rule;
  if (!best_.overflows) return false;
  bool better = false;
  for (const Rule rule : {Rule::in_proportion, Rule::far_keeps_up, Rule::longest_first}) {
    Choice choice = best_.choice;
    if (choice.far.rule == rule) continue;
    choice.far = {.rule = rule};
    better |= consider(choice);
  }
  if (best_.choice.far.rule == Rule::longest_first) return better;
  for (const double factor : {0.0, 0.5, 0.8, 1.25, 2.0}) {
    for (std::size_t stretch = 0; stretch < best_.choice.far.weights.size(); ++stretch) {
      Choice choice = best_.choice;
      choice.far.weights[stretch] *= factor;
      better |= consider(choice);
    }
  }
  return better;
}

void Search::search_knobs() {
  try_knobs(
      step_ns_, setting_.budget, [this](const Knobs& knobs) { consider(best_.choice.rule, knobs); },
      [this] { return best_.choice.knobs; });
}

// Where both directions share a bus, operands of the optimizer's last ops cost most: each byte comes and goes beside
// ops that take little longer than its transfer. Then they may stay, and operands of others move instead. The shares
// are of fast memory.
bool Search::search_kept() {
  if (!setting_.shared || machine_.habits.early_fetches || !best_.found) return false;
  bool better = false;
  for (const std::int64_t percent : {0, 5, 10, 15, 20, 25, 30, 40, 50, 60, 75}) {
    Choice choice = best_.choice;
    choice.knobs.kept = setting_.budget / 100 * percent;
    better |= consider(choice);
  }
  return better;
}

// A plan for less memory is valid for more: a find with less of it may be better than one with all.
bool Search::search_shares() {
  bool better = false;
  for (const std::uint32_t share : {95U, 90U, 85U, 80U, 75U, 70U, 60U, 50U, all_of_it}) {
    Choice choice = best_.choice;
    choice.share = share;
    if (share != best_.choice.share) better |= consider(choice);
  }
  return better;
}

// Once around the best: each price, all prices, and each knob.
bool Search::search_around() {
  bool better = false;
  for (const double factor : {0.0, 0.5, 0.8, 1.25, 2.0}) {
    for (std::size_t segment = 0; segment < RecomputeRule::segments; ++segment) {
      Choice choice = best_.choice;
      if (choice.rule.ns_per_byte[segment] <= 0) continue;
      choice.rule.ns_per_byte[segment] *= factor;
      better |= consider(choice);
    }
  }
  Choice other = best_.choice;
  other.rule.leaves_room = !other.rule.leaves_room;
  if (recomputes(other.rule)) better |= consider(other);
  for (const double factor : {0.7, 0.85, 1.2, 1.5}) {
    other = best_.choice;
    for (double& price : other.rule.ns_per_byte) price *= factor;
    better |= consider(other);
  }
  const std::uint32_t at = best_.choice.rule.shares_at;
  for (const std::uint32_t percent : {std::max(at, 15U) - 5, std::min(at + 5, all_of_it)}) {
    other = best_.choice;
    other.rule.shares_at = percent;
    if (at != 0) better |= consider(other);
  }
  if (with_gaps_) better |= search_gaps();
  better |= search_kept();
  for (const std::int64_t percent : {50, 70, 85, 120, 150, 200}) {
    Choice choice = best_.choice;
    choice.knobs.horizon_ns = choice.knobs.horizon_ns / 100 * percent;
    better |= consider(choice);
  }
  return better;
}

void Search::search_at_random() {
  if (best_.overflows && best_.choice.far.rule != TierShares::Rule::longest_first) changes_.deal();
  for (std::size_t failed = 0; !spent() && failed < (changes_.small() ? most_fine_failures : most_failures);)
    failed = consider(changes_.apply(best_.choice)) ? 0 : failed + 1;
}

void Search::search_finely() {
  tries_ = 0;
  changes_.make_small();
  while (search_around() || search_tiers()) {
  }
  search_at_random();
}

// The whole search, planning with a share of the memory, as if nothing had been found yet; then the best of both stays.
void Search::search_from(std::uint32_t share, const TierShares& far) {
  if (spent()) return;
  const Best before = std::move(best_);
  best_ = {.choice = {.rule = {}, .knobs = {}, .share = share, .far = far}};
  search_prices();
  search_knobs();
  if (!features_.searching) return;
  if (best_.found) search_shares();
  search_kept();
  while (best_.found && (search_around() || search_tiers())) {
  }
  if (before.found && (!best_.found || before.cost <= best_.cost)) best_ = before;
}

// The tries after a first search: less memory, then random changes.
void Search::search_on() {
  if (!features_.searching) return;
  for (const std::uint32_t share : {95U, 80U, 60U}) {
    if (!spent()) search_from(share, {.rule = best_.choice.far.rule});
  }
  if (best_.found) search_at_random();
}

// The same with stays that are a cover, from what the best one recomputes and its tiers; then the best of both stays.
void Search::search_covers() {
  if (!best_.found || !features_.covering || done_) return;
  const Best before = std::move(best_);
  best_ = {.choice = before.choice};
  best_.choice.cover = LinkPrices{};
  tries_ = 0;
  for (const std::uint32_t share : {before.choice.share, all_of_it}) {
    Choice choice = best_.choice;
    choice.share = share;
    consider(choice);
  }
  const std::size_t most = rules_.knobs_only ? most_failed_beside_knobs : most_failed_covers;
  for (std::size_t failed = 0; !spent() && failed < most;)
    failed = consider(changes_.apply(best_.choice)) ? 0 : failed + 1;
  if (!best_.found || before.cost <= best_.cost) best_ = before;
}

// From the first find the search goes on twice, without and with the rule that leaves short gaps alone, and a third
// search is by the dual's shares: each finds plans that the others miss. The dual knows no full middle tier. Of many
// ops only with the rule, for the time it takes.
void Search::search_everything() {
  search_from(all_of_it, {});
  if (best_.overflows) {
    using Rule = TierShares::Rule;
    // Weights of 0: the nearer tier is left to the first half of evictions.
    for (const TierShares& far : {TierShares{.rule = Rule::far_keeps_up}, TierShares{.rule = Rule::longest_first},
                                  TierShares{.rule = Rule::far_keeps_up, .weights = {0, 0, 0, 0, 1, 1, 1, 1}},
                                  TierShares{.rule = Rule::in_proportion, .weights = {0, 0, 0, 0, 1, 1, 1, 1}}}) {
      tries_ = 0;
      search_from(all_of_it, far);
    }
  }
  const Best first = best_;
  const std::size_t first_tries = tries_;
  const bool gaps_matter =
      first.found && !done_ && machine_.can_recompute && features_.recomputing && features_.searching;
  if (!gaps_matter || trace_.ops.size() <= many_ops) search_on();
  if (gaps_matter && !best_.overflows && trace_.ops.size() <= many_ops) {
    tries_ = 0;
    by_dual_ = true;
    search_from(all_of_it, {});
    by_dual_ = false;
  }
  if (gaps_matter) {
    const Best without_gaps = std::exchange(best_, first);
    tries_ = first_tries;
    tried_.clear();
    changes_.start_anew_with_gaps();
    with_gaps_ = true;
    while (search_around() || search_tiers()) {
    }
    search_on();
    // The best way of dealing without that rule need not be the best with it.
    using Rule = TierShares::Rule;
    for (const Rule rule : {Rule::in_proportion, Rule::far_keeps_up, Rule::longest_first}) {
      if (!best_.overflows) break;
      tries_ = 0;
      search_from(all_of_it, {.rule = rule});
    }
    if (without_gaps.cost <= best_.cost) best_ = without_gaps;
    if (trace_.ops.size() <= many_ops) search_finely();
  }
  // A session's plan is fitted to it between two tiers, where covers are tried. Of many ops they take too long.
  if (features_.searching && !machine_.habits.early_fetches && trace_.ops.size() <= many_ops) search_covers();
}

Result<Found> Search::run() {
  if (rules_.knobs_only) {
    search_knobs();
    search_covers();
  } else {
    search_everything();
  }
  if (!best_.found)
    return Error{
        Cause::infeasible,
        "no plan was found for " + readable_exactly({static_cast<std::uint64_t>(setting_.budget)}) + " of fast memory"};
  const Variant& kept = variants_.of(best_.choice.rule, best_.choice.share, best_.fingerprint);
  best_.kept.recomputed = kept.recomputed;
  best_.kept.parts = kept.parts;
  return std::move(best_.kept);
}

}  // namespace

Result<Found> search(const Trace& trace, const Machine& machine, const Setting& setting, const Features& features,
                     const SearchRules& rules) {
  return Search(trace, machine, setting, features, rules).run();
}

}  // namespace vedette::planning
