// vedette: our own planner, for slow tiers that are reached by copying; what lies in one that ops can use in place may
// stay there (in_place.h).
//
// Its rules are kept from four papers:
// - Belady 1966: the victim is the tensor needed furthest in the future.
// - Cao, Felten, Karlin, Li, SIGMETRICS'95 ("A study of integrated prefetching and caching strategies"): with known
//   uses, prefetch the next missing block as soon as a block that is needed later can leave (aggressive). Or only when
//   it replaces the block that demand would replace (conservative). The best lies between.
// - Kimbrel et al., OSDI'96 (forestall): between them, by how far ahead one looks.
// - G10, MICRO'23, section 4: stays in the slow tier are gaps between uses, fetches are issued as early as room allows.
// Changed: sizes differ and a dirty victim costs a write, so evictions are placed back into the idle time of their link
// since the last use. How far ahead to look is not derived but tried, each try rehearsed against the clock with both
// links. Changed tensors go out and come back while the links idle, so that they can leave without a write under
// pressure.
//
// Cost: O((ops + accesses) log ops) a try, about thirty tries.
#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "base/readable.h"
#include "base/time_limit.h"
#include "policy/canvas/op_times.h"
#include "policy/makers.h"
#include "policy/vedette/features.h"
#include "policy/vedette/in_place.h"
#include "policy/vedette/machines.h"
#include "policy/vedette/order.h"
#include "policy/vedette/rehearsal.h"
#include "policy/vedette/seam.h"
#include "policy/vedette/search.h"
#include "policy/vedette/slow_room.h"
#include "policy/vedette/sweep.h"
#include "policy/vedette/two_tiers.h"
#include "sim/bound.h"
#include "vedette/bound.h"
#include "vedette/check.h"

namespace vedette {
namespace {

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

Plan everything_near(const Trace& trace) {
  Plan plan;
  plan.home.assign(trace.tensors.size(), {0});
  plan.reasons = {"everything fits into the fastest tier: nothing moves"};
  return plan;
}

// Whether the judge is asked. It is naive: of many ops only where a tier in between can be full. The last tier is never
// asked for too much (slow_room.h).
bool judged(const Trace& trace, const Machine& machine) {
  constexpr std::size_t many_ops = 4'000;
  return trace.ops.size() <= many_ops || (machine.tiers.size() > 2 && !planning::first_holds_all(trace, machine));
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
  std::optional<Bytes> largest_part(Bytes fast_memory, Bytes granule) const noexcept override {
    if (!features_.parts) return std::nullopt;
    return Bytes{planning::part_bytes(fast_memory.value, granule.value)};
  }

 private:
  static constexpr std::array<std::uint64_t, 3> percents = {100, 70, 50};  // of the promised bandwidth, one trial each
  // of a trial; the step before them still has the old plan's leftovers
  static constexpr std::uint32_t measured_steps = 2;
  static constexpr std::uint32_t most_refreshes = 3;
  struct Trial {
    Plan plan;
    std::int64_t waits = 0;      // rehearsed: stalls, and time spent on recomputation
    std::int64_t measured = -1;  // the same, least of the measured steps; -1: none yet
  };

  Result<Trial> moving(const Trace& trace, const Machine& assumed, const Setting& setting) const;
  std::vector<Trial> recomputing(const Trace& trace, const Machine& assumed, const Setting& setting) const;
  Result<Trial> of_two_tiers(const Trace& trace, const Machine& assumed, const Setting& setting);
  Result<planning::Found> search_more_tiers(const Trace& trace, const Machine& assumed, bool judged) const;
  static std::optional<Trial> of_more_tiers(const Trace& trace, const Machine& machine, const planning::Found& wide);
  std::uint64_t percent() const { return percents[std::min(trials_.size(), percents.size() - 1)]; }

  void start_anew_for_another_program(const Trace& trace, const Machine& machine);
  bool times_have_moved(const Trace& trace) const;

  planning::Features features_;
  std::vector<Trial> trials_;
  std::optional<std::size_t> settled_;
  std::optional<Trial> without_;  // recomputation, where the first trial is with it: to be the last one
  bool without_next_ = false, tried_without_ = false;
  std::uint32_t steps_ = 0;  // ended since the running trial began
  std::uint32_t refreshes_ = 0;
  Nanoseconds planned_for_;  // sum of the op times
  std::size_t ops_ = 0, tensors_ = 0;
  bool cut_short_ = false;  // the last search, by a limit of time: its plan is no trial beside later ones
  Machine machine_;
};

void Vedette::start_anew_for_another_program(const Trace& trace, const Machine& machine) {
  const bool goes_on = !std::exchange(cut_short_, false);
  if (goes_on && ops_ == trace.ops.size() && tensors_ == trace.tensors.size() && machine_ == machine) return;
  trials_.clear();
  settled_.reset();
  without_.reset();
  without_next_ = tried_without_ = false;
  refreshes_ = 0;
  ops_ = trace.ops.size();
  tensors_ = trace.tensors.size();
  machine_ = machine;
}

bool Vedette::times_have_moved(const Trace& trace) const {
  const std::int64_t moved = planning::time_of_ops(trace).value - planned_for_.value;
  return (moved < 0 ? -moved : moved) > planned_for_.value / 20;  // 5 %: less changes no decision worth a replan
}

// Nothing is recomputed.
Result<Vedette::Trial> Vedette::moving(const Trace& trace, const Machine& assumed, const Setting& setting) const {
  auto found = planning::search_two_tiers(trace, assumed, setting, features_, percent());
  if (!found) return found.error();
  return Trial{.plan = std::move(found->plan), .waits = found->stall.value};
}

// The plan of the search for prices; and for sessions one with its recomputations, and moves as sessions make them.
std::vector<Vedette::Trial> Vedette::recomputing(const Trace& trace, const Machine& assumed,
                                                 const Setting& setting) const {
  std::vector<Trial> found;
  const bool live = assumed.habits.early_fetches;
  auto wide = planning::search(trace, assumed, planning::setting_of(assumed, planning::nearest_tier(assumed)),
                               features_, {.moves_count = live});
  if (!wide) return found;
  if (live && !wide->recomputed.recomputations.empty()) {
    if (auto fitted = moving(wide->recomputed.trace, assumed, setting))
      found.push_back({.plan = planning::plan_of_origin(trace, wide->recomputed, fitted->plan)});
  }
  found.push_back({.plan = std::move(wide->plan)});
  if (judged(trace, assumed))
    std::erase_if(found, [&](const Trial& each) { return check(trace, assumed, each.plan).has_value(); });
  return found;
}

// Recomputing has to be better when rehearsed, in a session by a hundredth of the step.
Result<Vedette::Trial> Vedette::of_two_tiers(const Trace& trace, const Machine& assumed, const Setting& setting) {
  if (trials_.empty()) without_.reset();
  // Else knobs are enough, but on one bus, where the search is for tensors that stay near. A session's step has no time
  // for that.
  const bool searched = assumed.can_recompute ? features_.recomputing : setting.shared && !assumed.habits.early_fetches;
  // Within a limit of time recomputations come first: a step of few bytes away gains little by either, and one of many
  // gains most by them.
  const bool in_a_hurry = searched && TimeLimit::exists();
  std::vector<Trial> tried;
  if (in_a_hurry) {
    const TimeLimit most = TimeLimit::part_of_rest(75);
    tried = recomputing(trace, assumed, setting);
  }
  auto plain = moving(trace, assumed, setting);
  if (!searched) return plain;
  if (!in_a_hurry) tried = recomputing(trace, assumed, setting);
  const planning::Rehearsal rehearsal(trace, assumed);
  const auto cost_of_plain = plain ? rehearsal.of(plain->plan) : std::nullopt;
  const std::int64_t margin = assumed.habits.early_fetches ? planning::time_of_ops(trace).value / 100 : 0;
  std::optional<Trial> best;
  std::optional<std::int64_t> least;
  if (cost_of_plain) least = cost_of_plain->cost.value - margin;
  for (Trial& each : tried) {
    const auto cost = rehearsal.of(each.plan);
    if (!cost || (least && cost->cost.value >= *least)) continue;
    least = cost->cost.value;
    each.waits = cost->waits.value;
    if (!each.plan.recomputations.empty())
      each.plan.reasons = planning::reasons_to_recompute(trace, each.plan, *cost, cost_of_plain);
    best = std::move(each);
  }
  if (!best) return plain;
  if (plain && trials_.empty() && !best->plan.recomputations.empty()) without_ = *std::move(plain);
  return *std::move(best);
}

// The search with recomputation has more to choose from and may end behind the one without. Where the bound says that
// moves alone can be better they are searched, too; a session's step has no time for that.
Result<planning::Found> Vedette::search_more_tiers(const Trace& trace, const Machine& assumed, bool judged) const {
  const Setting nearest = planning::setting_of(assumed, planning::nearest_tier(assumed));
  auto found = planning::search(trace, assumed, nearest, features_, {.judged = judged});
  if (!found || found->plan.recomputations.empty() || assumed.habits.early_fetches || TimeLimit::is_over())
    return found;
  Machine moves_alone = assumed;
  moves_alone.can_recompute = false;
  if (sim::coarse_bound(trace, moves_alone) >= found->step || lower_bound(trace, moves_alone) >= found->step)
    return found;
  const bool little_left = planning::good_enough(found->step, planning::time_of_ops(trace));
  auto moved = planning::search(trace, moves_alone, nearest, features_, {.judged = judged, .little_left = little_left});
  return moved && moved->step < found->step ? moved : found;
}

// Where tiers in between are full the plan may ask too much of one; then everything goes to one that holds it all.
std::optional<Vedette::Trial> Vedette::of_more_tiers(const Trace& trace, const Machine& machine,
                                                     const planning::Found& wide) {
  if (judged(trace, machine) && check(trace, machine, wide.plan)) return std::nullopt;
  return Trial{.plan = wide.plan, .waits = wide.step.value - planning::time_of_ops(trace).value};
}

Result<Plan> Vedette::prepare(const Trace& trace, const Machine& machine) {
  if (machine.tiers.empty()) return Error{Cause::malformed_input, "the machine has no tiers"};
  if (machine.can_reorder)
    return planning::plan_in_best_order(trace, machine, [&] { return planning::make_vedette_with(features_); });
  if (machine.whole_tensors) features_.parts = false;
  start_anew_for_another_program(trace, machine);
  steps_ = 0;
  if (settled_) return trials_[*settled_].plan;
  if (std::exchange(without_next_, false)) {
    trials_.push_back(*std::exchange(without_, std::nullopt));
    return trials_.back().plan;
  }
  planned_for_ = planning::time_of_ops(trace);
  const Uses uses = planning::uses_of(trace);
  Machine assumed = machine;
  for (Link& link : assumed.links)
    for (std::uint64_t* speed : {&link.bytes_per_s, &link.alone_bytes_per_s}) *speed = *speed / 100 * percent();
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
  if (auto error = planning::too_much_for_all_tiers(trace, assumed)) return *error;
  std::optional<Trial> made;
  if (machine.tiers.size() > 2) {
    auto wide = search_more_tiers(trace, assumed, judged(trace, machine));
    if (wide) made = of_more_tiers(trace, machine, *wide);
  }
  if (!made) {
    auto found = of_two_tiers(trace, assumed, setting);
    if (!found) return found.error();
    made = *std::move(found);
    if (judged(trace, machine) && planning::may_fill(trace, assumed, setting)) {
      if (const auto broken = check(trace, machine, made->plan))
        return Error{Cause::infeasible, "no plan was found: " + broken->message + "; give that tier more"};
    }
  }
  if (Plan other = planning::leave_in_place(trace, uses, assumed, made->plan);
      !judged(trace, machine) || !check(trace, machine, other)) {
    if (!other.in_place.empty()) made->waits = planning::Rehearsal(trace, assumed).of(other)->waits.value;
    made->plan = std::move(other);
  }
  if (machine.habits.plans_in_turns)
    made->plan = planning::leave_after_the_seam(trace, uses, assumed, std::move(made->plan));
  cut_short_ = TimeLimit::is_over();
  trials_.push_back(*std::move(made));
  return trials_.back().plan;
}

// A plan that recomputes is tried beside one that does not, whatever was rehearsed: the measured one of the two stays.
Reaction Vedette::react(const Event& event, const View& view) {
  if (event.kind != Event::Kind::step_ended || event.measured == nullptr || trials_.empty() || settled_) return {};
  if (++steps_ <= 1) return {};
  Trial& trial = trials_.back();
  const std::int64_t waits = event.measured->stall.value + event.measured->recomputing.value;
  trial.measured = trial.measured < 0 ? waits : std::min(trial.measured, waits);
  if (steps_ <= measured_steps) return {};
  const bool last = tried_without_;
  if (refreshes_ < most_refreshes && times_have_moved(view.trace) && !last) {
    ++refreshes_;
    trials_.pop_back();
    return {.replan = true};
  }
  // As rehearsed, within an eighth and a hundredth of the step: nothing to win. Waits for places are no link's fault.
  const std::int64_t promised = std::max(trial.waits, event.measured->in_places.value);
  const bool as_promised = trial.measured <= promised + promised / 8 + event.measured->time.value / 100;
  if (trials_.size() < percents.size() && !as_promised && !last) return {.replan = true};
  if (without_) {
    without_next_ = tried_without_ = true;
    return {.replan = true};
  }
  settled_ = static_cast<std::size_t>(
      std::min_element(trials_.begin(), trials_.end(),
                       [](const Trial& a, const Trial& b) { return a.measured < b.measured; }) -
      trials_.begin());
  return {.replan = *settled_ + 1 != trials_.size()};
}

}  // namespace

std::unique_ptr<Policy> make_vedette(std::uint64_t) { return std::make_unique<Vedette>(); }
std::unique_ptr<Policy> planning::make_vedette_with(const Features& features) {
  return std::make_unique<Vedette>(features);
}

}  // namespace vedette
