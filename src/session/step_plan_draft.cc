// A plan is made, by whatever thread: see step_plan.h.
#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "base/given_up.h"
#include "base/readable.h"
#include "base/time_limit.h"
#include "moves/place_waits.h"
#include "moves/planned_places.h"
#include "pack/large_ops.h"
#include "policy/vedette/likeness.h"
#include "session/step_plan.h"
#include "vedette/replay.h"

namespace vedette::detail {
namespace {

// Recomputation is the session's matter.
Result<void> acceptable(const Plan& plan, const Machine& machine, const Executor& executor) {
  if (!machine.can_recompute || plan.recomputations.empty()) return executor.accepts(plan);
  Plan moves = plan;
  moves.recomputations.clear();
  return executor.accepts(moves);
}

// Tensors begin away and no move brings one: ops fetch for themselves, and what is there may stay where it is.
bool leaves_fetches_to_ops(const Plan& plan) {
  return std::any_of(plan.home.begin(), plan.home.end(), [](TierIndex home) { return home != TierIndex{0}; }) &&
         std::none_of(plan.moves.begin(), plan.moves.end(), [](const Move& move) { return move.verb == Verb::fetch; });
}

}  // namespace

Result<Plan> StepPlan::Draft::ask_in_time(const Trace& trace, const Machine& assumed) {
  if (search_time.count() == 0) return policy->prepare(trace, assumed);
  const TimeLimit limit(TimeLimit::Clock::now() + std::chrono::hours(1), search_time);
  Result<Plan> made = policy->prepare(trace, assumed);
  cut_short = cut_short || TimeLimit::is_over();
  return made;
}

Result<Plan> StepPlan::Draft::ask_policy(const Trace& trace, const Machine& assumed) {
  const auto placed = with_wishes(trace, assumed, units.wishes, heeded.value_or(Heeded::none));
  if (!placed) return ask_in_time(trace, assumed);
  if (placed->slow_lacks.value > 0)
    return Error{.cause = Cause::infeasible,
                 .message = "slow memory lacks " + readable(placed->slow_lacks) + " for what is to stay there"};
  Result<Plan> rest = ask_in_time(placed->trace, placed->machine);
  if (!rest) return rest;
  return with_placed(*placed, trace, *std::move(rest));
}

Nanoseconds StepPlan::Draft::step_time() const {
  const auto replayed = replay(planned_trace(), machine, *plan);
  return replayed ? replayed->measured.time : Nanoseconds{std::numeric_limits<std::int64_t>::max()};
}

StepPlan::Draft StepPlan::Draft::another() const {
  return {.options = options,
          .executor = executor,
          .units = units,
          .machine = machine,
          .policy = make_policy(options.policy, options.seed),
          .places = places,
          .heeded = heeded,
          .search_time = search_time};
}

void StepPlan::Draft::take(Draft&& better) noexcept {
  policy = std::move(better.policy);
  places = std::move(better.places);
  fitting = std::move(better.fitting);
  plan = std::move(better.plan);
  heeded = better.heeded;
  cut_short = cut_short || better.cut_short;
}

void StepPlan::Draft::make() noexcept {
  if (policy == nullptr) return;
  const bool chosen = heeded.has_value();
  if (!chosen) heeded = strongest(units.wishes);
  make_heeding();
  if (chosen) return;
  while (heeded != Heeded::none && !(heeded == Heeded::rules && plan)) {
    Draft less = another();
    less.heeded = heeded == Heeded::all ? without_hints(units.wishes) : Heeded::none;
    less.make_heeding();
    if (plan && (!less.plan || step_time() <= less.step_time())) return;
    take(std::move(less));
  }
}

void StepPlan::Draft::make_heeding() {
  if (places) return make_in_places();
  fitting = with_ops_that_fit(units.trace, machine.tiers[0].capacity);
  plan = alike.empty() ? ask_policy(planned_trace(), machine) : plan_like_others();
  if (!plan) return;
  if (auto accepted = acceptable(*plan, machine, *executor); !accepted) plan = accepted.error();
}

Result<Plan> StepPlan::Draft::plan_like_others() const {
  std::vector<planning::PlannedStep> planned;
  for (const OfOtherSize& each : alike) planned.push_back({&each.trace, &each.plan});
  return planning::plan_by_likeness(planned, planned_trace(), machine);
}

void StepPlan::Draft::look_at_places() {
  TimeInPlaces times = time_in_places({units, places->moments}, places->moves, *places->found, machine);
  places->found->waited_for = std::move(times.waited_for);
  places->found->waits = times.step;
  for (const Op& op : units.trace.ops) places->found->waits = places->found->waits - op.time;
}

bool StepPlan::Draft::make_in_room(std::uint32_t percent) {
  Machine assumed = machine;
  assumed.tiers[0].capacity = {machine.tiers[0].capacity.value / 100 * percent};
  places->room_percent = percent;
  plan = ask_policy(units.trace, assumed);
  if (!plan) return true;
  if (auto accepted = acceptable(*plan, machine, *executor); !accepted) return plan = accepted.error(), true;
  if (leaves_fetches_to_ops(*plan)) return true;  // without places
  places->moves = tabulate(units, *plan, options.chunk, Fetches::as_planned);
  auto found = arrange({units, places->moments}, *plan, places->moves, places->range);
  if (!found) return plan = found.error(), false;
  places->found = *std::move(found);
  return true;
}

// A plan counts bytes, and not where they lie: where no places are found for one, another plan leaves some room. One
// that leaves a little more room may wait less for its places: of a step's first plan three are compared, unless
// recomputation makes each a long search.
void StepPlan::Draft::make_in_places() {
  constexpr std::uint32_t less = 3, least = 60;  // percent
  std::uint32_t percent = places->room_percent;
  while (!make_in_room(percent) && percent >= least + less && !MayBeGivenUp::is_given_up()) {
    percent -= less;
    policy = make_policy(options.policy, options.seed);
  }
  if (!plan || !places->found) return;
  look_at_places();
  if (!places->choose_room || machine.can_recompute || plan->moves.empty()) return;
  for (const std::uint32_t smaller : {less, 2 * less}) {
    if (percent < least + smaller || MayBeGivenUp::is_given_up()) return;
    Draft other = another();
    if (!other.make_in_room(percent - smaller) || !other.plan) continue;
    other.look_at_places();
    if (other.places->found->waits >= places->found->waits) continue;
    take(std::move(other));
  }
}

bool StepPlan::Draft::suits_memory() const noexcept { return !places || places->range == executor->range_of_plans(); }

}  // namespace vedette::detail
