// vedette: our own planner, for slow tiers that are reached by copying.
//
// What it stands on. Belady 1966: the victim is what is needed furthest in the future. Cao, Felten, Karlin, Li,
// SIGMETRICS'95
// ("A study of integrated prefetching and caching strategies"): with known uses, prefetch the next missing block as
// soon as something that is needed later can leave (aggressive). Or only when it replaces what demand would replace
// (conservative). The best lies between. Kimbrel et al., OSDI'96 (forestall): between them, by how far ahead one looks.
// G10, MICRO'23, section 4: stays in the slow tier as gaps between uses, fetches issued as early as room allows. Kept:
// their rules. Changed: sizes differ and a dirty victim costs a write, so evicts are placed back into the idle time of
// their link since the last use. How far ahead to look is not derived but tried, each try rehearsed against the clock
// with both links. What was changed goes out and comes back while the links idle, so that it can leave for nothing
// under pressure. Cost: O((ops + accesses) log ops) a try, about thirty tries.
#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "base/readable.h"
#include "policy/makers.h"
#include "policy/vedette/features.h"
#include "policy/vedette/fit.h"
#include "policy/vedette/knobs.h"
#include "policy/vedette/machines.h"
#include "policy/vedette/search.h"
#include "policy/vedette/sweep.h"
#include "vedette/check.h"

namespace vedette {
namespace {

using planning::Knobs;
using planning::Setting;
using planning::Uses;

std::int64_t largest_op(const Trace& trace, const Uses& uses, std::uint64_t granule) {
  std::int64_t largest = 0;
  for (std::uint32_t op = 0; op < trace.ops.size(); ++op) {
    auto sum = static_cast<std::int64_t>(trace.ops[op].workspace.value);
    for (std::uint32_t t : uses.operands[op])
      sum += static_cast<std::int64_t>(planning::rounded(trace.tensors[t].bytes.value, granule));
    largest = std::max(largest, sum);
  }
  return largest;
}

std::int64_t op_ns_of(const Trace& trace) {
  std::int64_t sum = 0;
  for (const Op& op : trace.ops) sum += op.time.value;
  return sum;
}

std::vector<std::string> reasons_of(const Knobs& knobs, Nanoseconds stall, Bytes evicted_after_last_use,
                                    std::uint64_t percent) {
  const auto ms = [](std::int64_t ns) {
    return std::to_string(ns / 1'000'000) + "." + std::to_string(ns / 100'000 % 10) + " ms";
  };
  std::vector<std::string> said = {
      "of the plans tried, the one kept waits " + ms(stall.value) + " a step when rehearsed",
      "fetches may start " + ms(knobs.horizon_ns) + " before demand would"};
  if (knobs.clean_ahead_ns >= 0)
    said.push_back("what changed is written out up to " + ms(knobs.clean_ahead_ns) + " before its room is needed");
  if (knobs.clean_after_last_use_ns >= 0)
    said.push_back("what lives on after its last use is written out up to " + ms(knobs.clean_after_last_use_ns) +
                   " before its room is needed, and leaves for nothing when it was used");
  if (evicted_after_last_use.value > 0)
    said.push_back(readable_exactly(evicted_after_last_use) +
                   " that no op uses again are written out before they die, while the links idle: what is needed "
                   "next comes into their room");
  if (percent != 100)
    said.push_back("planned for " + std::to_string(percent) + " % of the promised bandwidth, because moves came late");
  return said;
}

Plan everything_near(const Trace& trace) {
  Plan plan;
  plan.home.assign(trace.tensors.size(), {0});
  plan.reasons = {"everything fits into the fastest tier: nothing moves"};
  return plan;
}

// Plans are made from the profile's times and promised bandwidths. Times that settle elsewhere are planned for anew, a
// few times. Where the links turn out worse than promised, plans for slower ones are tried, each once, and the plan
// that was measured best stays: no way back and forth.
class Vedette final : public Policy {
 public:
  explicit Vedette(const planning::Features& features = {}) : features_(features) {}
  std::string_view name() const noexcept override { return "vedette"; }
  Result<Plan> prepare(const Trace& trace, const Machine& machine) override;
  Reaction react(const Event& event, const View& view) override;

 private:
  static constexpr std::array<std::uint64_t, 3> percents = {100, 70, 50};  // of the promised bandwidth, one trial each
  // of a trial; the step before them still has the old plan's leftovers
  static constexpr std::uint32_t measured_steps = 2;
  static constexpr std::uint32_t most_refreshes = 3;
  struct Trial {
    Plan plan;
    std::int64_t stall = 0;      // rehearsed
    std::int64_t measured = -1;  // least of the measured steps; -1: none yet
  };

  void start_anew_for_another_program(const Trace& trace, const Machine& machine);
  Result<Plan> plan_for_two_tiers(const Trace& trace, const Machine& assumed, const Setting& setting);
  bool times_have_moved(const Trace& trace) const;

  planning::Features features_;
  std::vector<Trial> trials_;
  std::optional<std::size_t> settled_;
  std::uint32_t steps_ = 0;  // ended since the running trial began
  std::uint32_t refreshes_ = 0;
  Nanoseconds planned_for_;  // sum of the op times
  std::size_t ops_ = 0, tensors_ = 0;
  Machine machine_;
};

void Vedette::start_anew_for_another_program(const Trace& trace, const Machine& machine) {
  if (ops_ == trace.ops.size() && tensors_ == trace.tensors.size() && machine_ == machine) return;
  trials_.clear();
  settled_.reset();
  refreshes_ = 0;
  ops_ = trace.ops.size();
  tensors_ = trace.tensors.size();
  machine_ = machine;
}

bool Vedette::times_have_moved(const Trace& trace) const {
  const std::int64_t moved = op_ns_of(trace) - planned_for_.value;
  return (moved < 0 ? -moved : moved) > planned_for_.value / 20;  // 5 %: less changes no decision worth a replan
}

Result<Plan> Vedette::prepare(const Trace& trace, const Machine& machine) {
  if (machine.tiers.empty()) return Error{Cause::malformed_input, "the machine has no tiers"};
  if (machine.whole_tensors) features_.parts = false;
  start_anew_for_another_program(trace, machine);
  steps_ = 0;
  if (settled_) return trials_[*settled_].plan;
  planned_for_ = {op_ns_of(trace)};
  const Uses uses = planning::uses_of(trace);
  Machine assumed = machine;
  for (Link& link : assumed.links)
    for (std::uint64_t* speed : {&link.bytes_per_s, &link.alone_bytes_per_s})
      *speed = *speed / 100 * percents[std::min(trials_.size(), percents.size() - 1)];
  const Setting setting = planning::setting_of(assumed, planning::tier_for_all(trace, assumed));
  const std::vector<std::int64_t> occupied = planning::occupied_without_moves(trace, uses, setting.granule);
  if (occupied.empty() || *std::max_element(occupied.begin(), occupied.end()) <= setting.budget)
    return everything_near(trace);
  const std::int64_t smallest = largest_op(trace, uses, setting.granule);
  if (smallest > setting.budget || setting.slow.value == 0) {
    return Error{Cause::infeasible, "the largest op needs " + readable_exactly({static_cast<std::uint64_t>(smallest)}) +
                                        " of fast memory at once, and there are " +
                                        readable_exactly({static_cast<std::uint64_t>(setting.budget)}) +
                                        "; give it that many"};
  }
  if (machine.can_recompute || machine.tiers.size() > 2) {
    auto wide =
        planning::search(trace, assumed, planning::setting_of(assumed, planning::nearest_tier(assumed)), features_, {});
    if (!wide) return wide.error();
    // Where tiers in between are full the wide plan may ask too much of one; then everything goes to one that holds it
    // all. The judge is naive: of many ops it is asked only where that can be.
    constexpr std::size_t many_ops = 4'000;
    if ((trace.ops.size() > many_ops && planning::first_holds_all(trace, machine)) ||
        !check(trace, machine, wide->plan)) {
      trials_.push_back(
          {.plan = std::move(wide->plan), .stall = wide->step.value - planned_for_.value - wide->recomputing.value});
      return trials_.back().plan;
    }
  }
  return plan_for_two_tiers(trace, assumed, setting);
}

Result<Plan> Vedette::plan_for_two_tiers(const Trace& trace, const Machine& assumed, const Setting& setting) {
  const planning::SearchRules rules{
      .knobs_only = true, .link_cost = {.percent = planning::link_time_percent(assumed), .slow = setting.slow}};
  Machine as_issued = planning::with(planning::without_interference(assumed), {});
  as_issued.can_recompute = false;
  auto found = planning::search(trace, as_issued, setting, features_, rules);
  if (!found) return found.error();
  planning::FittedToSessions kept{.plan = std::move(found->plan),
                                  .knobs = found->knobs,
                                  .stall = {found->step.value - planned_for_.value},
                                  .evicted_after_last_use = {}};
  if (assumed.habits.early_fetches)
    kept = planning::fit_to_sessions(trace, found->parts, assumed, setting, features_,
                                     {std::move(found->stays), std::move(found->plan_of_parts), found->knobs});
  const std::uint64_t percent = percents[std::min(trials_.size(), percents.size() - 1)];
  trials_.push_back({.plan = std::move(kept.plan), .stall = kept.stall.value});
  trials_.back().plan.reasons = reasons_of(kept.knobs, kept.stall, kept.evicted_after_last_use, percent);
  return trials_.back().plan;
}

Reaction Vedette::react(const Event& event, const View& view) {
  if (event.kind != Event::Kind::step_ended || event.measured == nullptr || trials_.empty() || settled_) return {};
  if (++steps_ <= 1) return {};
  Trial& trial = trials_.back();
  const std::int64_t stall = event.measured->stall.value;
  trial.measured = trial.measured < 0 ? stall : std::min(trial.measured, stall);
  if (steps_ <= measured_steps) return {};
  if (refreshes_ < most_refreshes && times_have_moved(view.trace)) {
    ++refreshes_;
    trials_.pop_back();
    return {.moves = {}, .replan = true};
  }
  // As rehearsed, within an eighth and a hundredth of the step: nothing to win.
  const bool as_promised = trial.measured <= trial.stall + trial.stall / 8 + event.measured->time.value / 100;
  if (trials_.size() < percents.size() && !as_promised) return {.moves = {}, .replan = true};
  settled_ = static_cast<std::size_t>(
      std::min_element(trials_.begin(), trials_.end(),
                       [](const Trial& a, const Trial& b) { return a.measured < b.measured; }) -
      trials_.begin());
  return {.moves = {}, .replan = *settled_ + 1 != trials_.size()};
}

}  // namespace

std::unique_ptr<Policy> make_vedette(std::uint64_t) { return std::make_unique<Vedette>(); }
std::unique_ptr<Policy> planning::make_vedette_with(const Features& features) {
  return std::make_unique<Vedette>(features);
}

}  // namespace vedette
