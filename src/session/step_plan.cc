// Plans, and their measured times: see step_plan.h.
#include "session/step_plan.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "base/readable.h"
#include "moves/step_start.h"

namespace vedette::detail {
namespace {

std::vector<bool> parts_that_make_recomputed(const Trace& trace, const Plan& plan) {
  std::vector<bool> recomputed(trace.tensors.size()), parts(trace.ops.size());
  for (const Recomputation& each : plan.recomputations) recomputed[each.tensor.value] = true;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::vector<TensorIndex>& writes = trace.ops[i].writes;
    parts[i] = std::any_of(writes.begin(), writes.end(), [&](TensorIndex t) { return recomputed[t.value]; });
  }
  return parts;
}

// How many tensors live in each chunk before an op: walks through the step. In all O(tensors * their chunks).
class LivingInChunks {
 public:
  LivingInChunks(const StepLog& log, Bytes chunk) : chunk_(chunk.value) {
    for (const LoggedTensor& logged : log.tensors) {
      if (logged.bytes.value == 0 || logged.small || logged.in_parts) continue;
      begins_.push_back({logged.birth, &logged});
      ends_.push_back({logged.death, &logged});
    }
    const auto earlier = [](const Moment& a, const Moment& b) { return a.first < b.first; };
    std::sort(begins_.begin(), begins_.end(), earlier);
    std::sort(ends_.begin(), ends_.end(), earlier);
  }
  // Born at `event` or before, and not dead then; calls with ascending events.
  void advance(std::uint32_t event) {
    for (; born_ < begins_.size() && begins_[born_].first <= event; ++born_) count(*begins_[born_].second, 1);
    for (; died_ < ends_.size() && ends_[died_].first <= event; ++died_) count(*ends_[died_].second, -1);
  }
  bool any(const UnitChunks& where) const {
    const auto end = std::min<std::size_t>(counts_.size(), std::size_t{where.first} + where.count);
    for (std::size_t c = where.first; c < end; ++c)
      if (counts_[c] > 0) return true;
    return false;
  }

 private:
  using Moment = std::pair<std::uint32_t, const LoggedTensor*>;

  void count(const LoggedTensor& tensor, std::int32_t change) {
    const std::uint64_t first = tensor.offset / chunk_, last = (tensor.offset + tensor.bytes.value - 1) / chunk_;
    if (last >= counts_.size()) counts_.resize(last + 1);
    for (std::uint64_t c = first; c <= last; ++c) counts_[c] += change;
  }

  const std::uint64_t chunk_;
  std::vector<Moment> begins_, ends_;
  std::size_t born_ = 0, died_ = 0;
  std::vector<std::int32_t> counts_;  // [chunk]
};

}  // namespace

void tell_what_runs_again(Units& units, const StepLog& log, const std::vector<char>& ops, Bytes chunk) {
  LivingInChunks living(log, chunk);
  std::vector<bool> born;
  for (const Tensor& unit : units.trace.tensors) born.push_back(unit.persistent);
  for (std::uint32_t i = 0; i < units.trace.ops.size(); ++i) {
    Op& op = units.trace.ops[i];
    op.runs_again = i < ops.size() && ops[i] != 0;
    living.advance(log.ops[i].events.begin);
    for (const TensorIndex u : op.writes)
      if (living.any(units.where[u.value])) op.reads.push_back(u);
    // A section may be the first to touch a tensor that its op made before: there is nothing yet that it could read,
    // says the judge.
    std::erase_if(op.reads, [&](TensorIndex u) { return !born[u.value]; });
    for (const TensorIndex u : op.writes) born[u.value] = true;
    sort_operands(op);
  }
}

std::uint32_t most_chunks_of_a_unit(const Policy* policy, Bytes fast_memory, Bytes chunk) noexcept {
  const auto part = policy == nullptr ? std::nullopt : policy->largest_part(fast_memory, chunk);
  return part ? static_cast<std::uint32_t>(std::clamp<std::uint64_t>(part->value / chunk.value, 1, ~0u)) : ~0u;
}

StepPlan::StepPlan(const StepLog& log, Options options) : options_(options) {
  form(log, {});
  for (std::uint32_t i = 0; i <= log.ops.size(); ++i) first_.push_back(i);
}

void StepPlan::form(const StepLog& log, const std::vector<char>& runs_again) {
  policy_ = make_policy(options_.policy, options_.seed);
  if (options_.range) {
    TensorUnits step = tensor_units(log, options_.chunk);
    units_ = std::move(step.units);
    moments_ = std::move(step.moments);
  } else {
    units_ =
        form_units(log, options_.chunk, most_chunks_of_a_unit(policy_.get(), options_.fast_memory, options_.chunk));
  }
  frames_to_come_ = Grouped<std::uint32_t>(std::exchange(units_.frames_to_come, {}));
  if (!runs_again.empty()) tell_what_runs_again(units_, log, runs_again, options_.chunk);
  moves_ = MoveTable(units_.trace.ops.size());
  for (const LoggedOp& op : log.ops) least_times_.push_back(op.time);
}

void StepPlan::can_recompute(const StepLog& log, std::vector<char> ops) {
  runs_again_ = std::move(ops);
  tell_what_runs_again(units_, log, runs_again_, options_.chunk);
}

// Sections cannot run again by themselves.
StepPlan StepPlan::in_sections(SectionedLog log) const {
  StepPlan cut(options_);
  cut.runs_again_ = runs_again_;
  std::vector<char> runs_again(runs_again_.empty() ? 0 : log.log.ops.size());
  for (std::size_t i = 0; i + 1 < log.first.size() && i < runs_again_.size(); ++i)
    if (log.first[i + 1] == log.first[i] + 1) runs_again[log.first[i]] = runs_again_[i];
  cut.program_in_sections_.emplace(program_trace(log.log));
  cut.form(log.log, runs_again);
  cut.first_ = std::move(log.first);
  cut.times_are_guesses_ = true;
  return cut;
}

StepPlan StepPlan::in_memory(Bytes fast_memory, std::optional<Bytes> range) const {
  StepPlan same(options_);
  same.options_.fast_memory = fast_memory;
  same.options_.range = range;
  same.units_ = units_;
  same.frames_to_come_ = frames_to_come_;
  same.first_ = first_;
  same.moments_ = moments_;
  same.policy_ = make_policy(options_.policy, options_.seed);
  same.moves_ = MoveTable(units_.trace.ops.size());
  same.least_times_ = least_times_;
  same.times_are_guesses_ = times_are_guesses_;
  same.runs_again_ = runs_again_;
  same.program_in_sections_ = program_in_sections_;
  return same;
}

// plan_ is about to be replaced.
void StepPlan::keep_if_best() {
  if (!places_ || least_.value == 0) return;
  if (best_ && best_->room == room_ && best_->least <= least_) return;
  best_ = {std::move(plan_), *std::move(places_), std::exchange(moves_, MoveTable(0)), least_, room_};
}

bool StepPlan::was_better_before() const {
  constexpr std::int64_t noise = 50;  // a fiftieth
  return places_ && best_ && best_->room == room_ && best_->least.value + best_->least.value / noise < least_.value;
}

bool StepPlan::take_best() {
  if (!best_ || best_->room != room_) return best_.reset(), false;
  plan_ = std::move(best_->plan);
  places_ = std::move(best_->places);
  moves_ = std::move(best_->moves);
  best_.reset();
  return true;
}

// The budget that the largest op wants is more than the op: chunks are held beside the plan's capacity, and before the
// plan tensors lay less densely.
Error StepPlan::without_plan(const Error& cause, const Draft& draft) const {
  const Bytes capacity = draft.machine.tiers[0].capacity, largest = largest_op_bytes(planned_trace());
  const std::uint64_t chunk = options_.chunk.value, seen = draft.executor->largest_op_chunks() * chunk;
  std::string why = "policy " + std::string(policy_->name());
  if (cause.cause != Cause::infeasible || largest <= capacity || capacity > options_.fast_memory) {
    why += ": " + cause.message;
  } else {
    const std::uint64_t wanted = std::max(largest.value + options_.fast_memory.value - capacity.value, seen);
    why += " has no plan, since an op's operands and results need " + readable(largest) +
           " at once; give fast_memory at least " +
           readable_exactly(draft.executor->budget_for({wanted + Executor::chunks_beside_op * chunk}));
  }
  return {.cause = cause.cause, .message = why + "; its steps run without a plan"};
}

void StepPlan::forget_plan() {
  steps_ = 0;
  in_place_.clear();
  least_ = {};
  plan_ = {};
  places_.reset();
}

void StepPlan::tabulate_plan() {
  if (!places_) {
    moves_ = tabulate(units_, plan_, options_.chunk);
    start_ = start_of(units_, plan_);
  }
  makes_recomputed_ = parts_that_make_recomputed(units_.trace, plan_);
}

// --- a plan is made --------------------------------------------------------------------------------------------------

std::unique_ptr<StepPlan::Draft> StepPlan::drafted(Units units, Moments moments, const Machine& machine,
                                                   const Executor& executor) {
  in_draft_ = policy_ != nullptr;
  auto draft = std::make_unique<Draft>(Draft{.options = options_,
                                             .executor = &executor,
                                             .units = std::move(units),
                                             .machine = machine,
                                             .policy = std::move(policy_),
                                             .heeded = latest_.heeded});
  if (options_.range)
    draft->places = {.moments = std::move(moments),
                     .range = executor.range_of_plans(),
                     .room_percent = room_percent_,
                     .choose_room = !places_ && !best_};
  return draft;
}

std::unique_ptr<StepPlan::Draft> StepPlan::begin(const Machine& machine, const Executor& executor) {
  return drafted(units_, moments_, machine, executor);
}

Result<void> StepPlan::prepare(const Machine& machine, const Executor& executor) {
  if (std::exchange(back_to_best_, false)) {
    room_ = {machine.tiers[0].capacity, executor.range_of_plans(), machine.habits.plans_in_turns};
    forget_plan();
    if (take_best()) return latest_.failed = false, tabulate_plan(), Result<void>();
  }
  std::unique_ptr<Draft> draft = drafted(std::move(units_), std::move(moments_), machine, executor);
  draft->make();
  units_ = std::move(draft->units);
  if (draft->places) moments_ = std::move(draft->places->moments);
  return finish(std::move(draft));
}

void StepPlan::take_back_policy(Draft& draft) noexcept {
  policy_ = std::move(draft.policy);
  in_draft_ = false;
}

void StepPlan::forget_draft() {
  if (!std::exchange(in_draft_, false)) return;
  policy_ = make_policy(options_.policy, options_.seed);
}

Result<void> StepPlan::finish(std::unique_ptr<Draft> draft) {
  take_back_policy(*draft);
  keep_if_best();
  forget_plan();
  if (!latest_.heeded && draft->plan && draft->heeded) {
    latest_.heeded = draft->heeded;
    latest_.breaks_rules = draft->heeded == Heeded::none && without_hints(units_.wishes) == Heeded::rules;
  }
  fitting_ = std::move(draft->fitting);
  for (std::size_t i = 0; fitting_ && i < least_times_.size(); ++i) fitting_->ops[i].time = least_times_[i];
  if (draft->places) {
    room_ = {draft->machine.tiers[0].capacity, draft->places->range, draft->machine.habits.plans_in_turns};
    room_percent_ = draft->places->room_percent;
  }
  Result<void> made;
  if (draft->plan) {
    plan_ = *std::move(draft->plan);
    if (draft->places) {
      places_ = std::move(draft->places->found);
      moves_ = std::move(draft->places->moves);
    }
  } else if (!take_best()) {
    made = without_plan(draft->plan.error(), *draft);
  }
  latest_.failed = !made;
  tabulate_plan();
  return made;
}

// --- how it went -----------------------------------------------------------------------------------------------------

bool StepPlan::measure(const Measured& measured, const Machine& machine) {
  if (measured.times.size() != moves_.size()) return false;  // it began by another plan, with other sections
  const bool first_measured = std::exchange(times_are_guesses_, false);
  for (std::size_t i = 0; i < moves_.size(); ++i)
    least_times_[i] = first_measured ? measured.times[i] : std::min(least_times_[i], measured.times[i]);
  if (policy_ == nullptr) return false;
  StepMeasured told{.time = measured.time,
                    .stall = measured.stall,
                    .recomputing = measured.recomputing,
                    .in_places = places_ ? places_->waits : Nanoseconds{},
                    .op_stall = {measured.stalls.begin(), measured.stalls.end()}};
  constexpr Nanoseconds noticeable{50'000};
  for (std::uint32_t m = 0; m < plan_.moves.size(); ++m) {
    const Move& move = plan_.moves[m];
    if (move.verb != Verb::fetch || move.due.value >= measured.stalls.size()) continue;
    Nanoseconds waited = measured.stalls[move.due.value];
    if (!measured.for_room.empty()) waited = waited - measured.for_room[move.due.value];
    if (waited > noticeable) told.late.push_back(m);
  }
  for (std::size_t i = 0; i < least_times_.size(); ++i) {
    units_.trace.ops[i].time = least_times_[i];
    if (fitting_) fitting_->ops[i].time = least_times_[i];
  }
  const View view{.trace = planned_trace(), .machine = machine};
  const bool replan = policy_->react({.kind = Event::Kind::step_ended, .measured = &told}, view).replan;
  // The first step by a plan begins with what the plan before left; the policy may want others for some steps more.
  constexpr std::uint32_t settled = 5;
  if (++steps_ > 1) least_ = least_.value == 0 ? measured.time : std::min(least_, measured.time);
  if (std::exchange(not_measured_, false) || replan) return true;
  back_to_best_ = steps_ >= settled && was_better_before();
  return back_to_best_;
}

bool StepPlan::price_in_place(const Measured& measured, Machine& machine) {
  if (in_place_.told || times_are_guesses_ || measured.times.size() != moves_.size()) return false;
  const TierIndex there{1};
  for (const InPlaceUse& use : measured.in_place) {
    if (use.op.value + 1 >= first_.size()) continue;
    const std::uint32_t part = first_[use.op.value];
    if (first_[use.op.value + 1] != part + 1) continue;  // it is not known which section used them
    const Nanoseconds moves = machine.time_in_place({}, there, use.read, use.written);
    if (moves.value > 0) in_place_.used(part, moves, measured.times[part] + use.waited);
  }
  if (steps_ < InPlaceTrials::enough) return false;
  const std::vector<InPlacePrice> prices = in_place_.prices(units_.trace.ops, least_times_);
  if (prices.empty()) return false;
  in_place_.told = true;
  return take_prices(prices, machine);
}

Nanoseconds StepPlan::least_time_of(std::uint32_t op) const {
  return std::accumulate(least_times_.begin() + first_[op], least_times_.begin() + first_[op + 1], Nanoseconds{});
}

}  // namespace vedette::detail
