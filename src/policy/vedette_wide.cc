// Tries prices of making again and the sweep's knobs, rehearses each on the machine with all its tiers, and keeps the fastest.
#include "policy/vedette_wide.h"

#include <algorithm>
#include <optional>
#include <string>

#include "policy/vedette_layout.h"
#include "policy/vedette_remake.h"
#include "policy/vedette_split.h"
#include "policy/vedette_tiers.h"
#include "sim/simulator.h"

namespace vedette::planning {
namespace {

constexpr std::int64_t link_time_percent = 1;     // of two equal plans the one that moves less
constexpr std::size_t most_work = 160'000;        // tries times ops
constexpr std::size_t many_ops = 4'000;           // from here on a try takes longer than in proportion, and gets less: 10,000 ops plan in a second
constexpr std::uint64_t parts_of_budget = 48;     // as for two tiers
constexpr std::int64_t most_lead = 8;             // fetches are issued at most so much of a step early

// A trace with some tensors made again, cut into parts, ready to be planned for.
struct Variant {
  RemakeRule rule;
  Remade remade;
  Split parts;
  Uses uses;
  sim::Step step;
};

class WideSearch {
 public:
  WideSearch(const Trace& trace, const Machine& machine, const Setting& setting)
      : trace_(trace), machine_(machine), setting_(setting), remaker_(trace, machine) {
    for (const Op& op : trace.ops) step_ns_ += op.time.value;
  }

  Result<Wide> run();

 private:
  const Variant& variant(const RemakeRule& rule);
  void consider(const RemakeRule& rule, const Knobs& knobs);
  template <class Value>
  void consider_with(Value Knobs::*knob, Value value);
  void search_prices();
  void search_knobs();
  Plan joined_back(const Variant& variant, const Plan& plan) const;
  bool spent() const { return found_ && tries_ * trace_.ops.size() > (trace_.ops.size() > many_ops ? most_work / 3 : most_work); }

  const Trace& trace_;
  const Machine& machine_;
  const Setting& setting_;
  Remaker remaker_;
  std::int64_t step_ns_ = 0, cost_ = 0;
  std::size_t tries_ = 0;
  bool found_ = false;
  std::vector<Variant> variants_;
  RemakeRule rule_;
  Wide best_;
};

const Variant& WideSearch::variant(const RemakeRule& rule) {
  for (const Variant& each : variants_) {
    if (each.rule == rule) return each;
  }
  Variant made{.rule = rule, .remade = remaker_.remake(rule), .parts = {}, .uses = {}, .step = {}};
  const std::uint64_t part = rounded(std::max<std::uint64_t>(1, static_cast<std::uint64_t>(setting_.budget) / parts_of_budget), setting_.granule);
  made.parts = split(made.remade.trace, part);
  made.uses = uses_of(made.parts.trace);
  made.step = sim::flatten(made.parts.trace);
  variants_.push_back(std::move(made));
  return variants_.back();
}

RemakeRule uniform(double ns_per_byte, std::uint32_t depth) {
  RemakeRule rule{.depth = depth};
  rule.ns_per_byte.fill(ns_per_byte);
  return rule;
}

void WideSearch::consider(const RemakeRule& rule, const Knobs& knobs) {
  if (spent()) return;
  ++tries_;
  const Variant& v = variant(rule);
  const Trace& trace = v.parts.trace;
  auto gaps = lay_out(trace, v.uses, setting_, sweep(trace, v.uses, setting_, knobs));
  if (!gaps) return;
  fetch_early(trace, v.uses, setting_, step_ns_ / most_lead, 0, *gaps);
  spread_over_tiers(trace, v.uses, machine_, setting_, *gaps);
  Plan plan = plan_of(trace, setting_, *gaps);
  const auto replayed = sim::simulate(trace, v.step, machine_, plan, {.steps = 2});
  if (!replayed) return;
  std::int64_t links = 0;
  for (const Nanoseconds busy : replayed->link_busy) links += busy.value;
  const std::int64_t cost = replayed->measured.time.value + links / 100 * link_time_percent;
  if (found_ && cost >= cost_) return;
  found_ = true;
  cost_ = cost;
  rule_ = rule;
  best_ = {.plan = joined_back(v, plan), .step = replayed->measured.time, .remaking = {}, .knobs = knobs};
  for (const Recomputation& each : v.remade.recomputations) best_.remaking += trace_.ops[each.producer.value].time;
}

template <class Value>
void WideSearch::consider_with(Value Knobs::*knob, Value value) {
  Knobs knobs = best_.knobs;
  if (knobs.*knob == value) return;
  knobs.*knob = value;
  consider(rule_, knobs);
}

// A byte that is made again spares both links one byte: up to that price it can pay.
void WideSearch::search_prices() {
  const double round_trip = (setting_.read_bytes_per_s == 0 ? 0 : 1e9 / static_cast<double>(setting_.read_bytes_per_s)) +
                            (setting_.write_bytes_per_s == 0 ? 0 : 1e9 / static_cast<double>(setting_.write_bytes_per_s));
  const Knobs far{.horizon_ns = step_ns_ / 16, .clean_ahead_ns = -1}, near{.horizon_ns = 0, .clean_ahead_ns = step_ns_ / 32};
  consider(uniform(-1, 0), far);
  consider(uniform(-1, 0), near);
  if (!machine_.can_recompute) return;
  for (const double share : {0.03, 0.1, 0.3, 0.6, 1.0, 2.0}) {
    for (const std::uint32_t depth : {16U, 3U}) {
      consider(uniform(round_trip * share, depth), far);
      consider(uniform(round_trip * share, depth), near);
    }
  }
  if (rule_.ns_per_byte[0] <= 0) return;
  for (const double factor : {0.6, 0.8, 1.25, 1.6}) consider(uniform(rule_.ns_per_byte[0] * factor, rule_.depth), best_.knobs);
  for (const std::uint32_t depth : {0U, 1U, 8U, 64U}) consider(uniform(rule_.ns_per_byte[0], depth), best_.knobs);
  for (const double factor : {0.0, 0.4, 2.5, 0.7}) {
    for (std::size_t segment = 0; segment < RemakeRule::segments; ++segment) {
      RemakeRule rule = rule_;
      rule.ns_per_byte[segment] *= factor;
      consider(rule, best_.knobs);
    }
  }
}

void WideSearch::search_knobs() {
  for (std::int64_t part : {0, 4, 64, 1, 16, 256, 2, 8}) {
    for (std::int64_t clean_ahead : {std::int64_t{-1}, step_ns_ / 32})
      consider(rule_, {.horizon_ns = step_ns_ / 64 * part, .clean_ahead_ns = clean_ahead});
  }
  for (std::int64_t part : {512, 128, 64, 16, 8, 4, 1}) consider_with(&Knobs::clean_ahead_ns, step_ns_ / part);
  const std::int64_t best = best_.knobs.horizon_ns;
  for (std::int64_t percent : {60, 75, 85, 115, 135, 160}) consider_with(&Knobs::horizon_ns, best / 100 * percent);
  for (std::uint32_t percent : {100U, 107U, 125U, 140U, 200U}) consider_with(&Knobs::clean_percent, percent);
  for (std::uint32_t percent : {120U, 150U}) consider_with(&Knobs::distance_percent, percent);
  for (std::int64_t part : {100, 50, 25, 12}) consider_with(&Knobs::staging, setting_.budget / part);
}

// Parts to lives, lives to tensors; what is thrown away leaves before what is written.
Plan WideSearch::joined_back(const Variant& variant, const Plan& plan) const {
  const Plan lives = joined(variant.remade.trace, variant.parts, plan);
  Plan whole;
  whole.home.assign(trace_.tensors.size(), {0});
  for (std::size_t life = 0; life < variant.remade.origin.size(); ++life) {
    if (trace_.tensors[variant.remade.origin[life]].persistent) whole.home[variant.remade.origin[life]] = lives.home[life];
  }
  whole.moves = variant.remade.drops;
  for (Move move : lives.moves) {
    move.extent.tensor = {variant.remade.origin[move.extent.tensor.value]};
    whole.moves.push_back(move);
  }
  std::stable_sort(whole.moves.begin(), whole.moves.end(), [](const Move& a, const Move& b) { return a.issue < b.issue; });
  whole.recomputations = variant.remade.recomputations;
  return whole;
}

Result<Wide> WideSearch::run() {
  variants_.reserve(128);
  search_prices();
  search_knobs();
  if (!found_) return Error{Cause::infeasible, "vedette: no plan was found for " + std::to_string(setting_.budget) + " bytes of fast memory"};
  return best_;
}

}  // namespace

Result<Wide> plan_widely(const Trace& trace, const Machine& machine, const Setting& setting) {
  return WideSearch(trace, machine, setting).run();
}

}  // namespace vedette::planning
