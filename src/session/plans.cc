// From the log of a step to a plan that runs: new buckets, and plans that change.
#include "session/plans.h"

#include <algorithm>

#include "session/fast_memory.h"
#include "session/like_log.h"

namespace vedette::detail {
namespace {

// Where ops can use slower memory in place: chunks of tables that few steps touch lie there, and the others have the
// room that plans leave to rows.
void keep_hot_rows_near(const Bucket& ran, RowLog& rows, std::uint32_t free) {
  if (auto hot = ran.rows.hot(room_for_rows(free, ran.unplanned()))) rows.keep_near(*std::move(hot));
}

}  // namespace

void Plans::start(Machine machine, std::uint32_t frames) {
  recomputes_ = machine.can_recompute;
  making_.start(std::move(machine), frames);
}

void Plans::forget() {
  buckets_.clear();
  foresight_.forget();
}

// --- a step ----------------------------------------------------------------------------------------------------------

void Plans::begin_step() {
  buckets_.begin_step();
  foresight_.begin_step();
}

void Plans::end_step(const RanStep& ran) {
  const bool later = executor_->traits().times_later;
  const bool alike = foresees() && foresight_.remember(logger_.log(), logger_.kinds(), logger_.prefix(),
                                                       later ? std::optional(logger_.step()) : std::nullopt);
  if (runs_whole()) {
    current()->ran(logger_.step());
    buckets_.ran_whole();
    end_foretold_step();
    reports_.say_that_nothing_moves(*current(), ran.so_far);
    finish_planned_step(*current(), ran);
    return making_.plan_for_turns();
  }
  if (current() != nullptr) executor_->forget_plan();  // the step ended early
  end_foretold_step();
  const bool foretells =
      may_plan_by_likeness() && can_be_foretold(logger_.log()) && buckets_.wants_log(logger_.kinds());
  if (!buckets_.worth_learning(logger_.prefix(), logger_.hashes(), alike && !foretells)) {
    if (later) take_times(false);
    return leave();
  }
  learn(ran);
}

// --- an op -----------------------------------------------------------------------------------------------------------

void Plans::follow(std::uint32_t op) {
  take_plan_in_step();
  if (buckets_.follow(op, logger_.prefix())) executor_->forget_plan();
}

const Ahead* Plans::predict() {
  if (follows_plan() || !foresees()) return nullptr;
  const Ahead* const ahead = foresight_.look(logger_.log(), logger_.kinds(), frames());
  return ahead != nullptr && plan_by_likeness() ? nullptr : ahead;
}

// --- what is learned of a step ---------------------------------------------------------------------------------------

StepPlan::Options Plans::plan_options(std::optional<Bytes> range) const {
  return {.chunk = options_.chunk,
          .policy = options_.policy,
          .seed = options_.seed,
          .range = range,
          .fast_memory = {frames() * options_.chunk.value}};
}

// A new sequence of ops.
void Plans::learn(const RanStep& ran) {
  const std::size_t used = logger_.log().tensors.size();  // others are appended
  StepLog& log = logger_.finished(arena_);
  const bool measured = !executor_->traits().times_later || replace_times(log);
  AddressPlan addresses(log, logger_.events(), arena_, options_.chunk,
                        executor_->traits().whole_tensors ? Heap::Chunks::of_one_tensor : Heap::Chunks::shared);
  std::vector<std::uint32_t> logged;
  auto fresh = std::make_unique<Bucket>(buckets_.next_id(), log, logger_.hashes(), std::move(addresses),
                                        plan_options(executor_->range()), &logged);
  logger_.tell_births(logged);
  if (options_.observer != nullptr) options_.observer->profiled(logger_.step(), fresh->id(), fresh->program());
  if (!measured) fresh->plan.was_not_measured();
  fresh->profiled(logger_.step(), ran.rows.chunks() + std::min(arena_.slab_chunks_that_may_leave(),
                                                               most_slab_chunks_that_stay(frames())));
  fresh->rows.add(ran.rows.take());
  if (ran.recomputer != nullptr) fresh->can_recompute(log, ran.recomputer->remembered());
  reports_.advise_on_rows(ran.rows.chunks());
  const Trace& units = fresh->plan.units().trace;
  fresh->sections = SectionLearner(fresh->plan.has_policy() && executor_->traits().serves_system_calls
                                       ? worth_observing(units, log, options_.chunk)
                                       : std::vector<char>(units.ops.size()));
  if (may_plan_by_likeness() && can_be_foretold(log) && buckets_.wants_log(logger_.kinds())) {
    Bucket::AsLogged kept{.log = log, .kinds = {logger_.kinds().begin(), logger_.kinds().end()}};
    kept.log.tensors.resize(used);
    fresh->keep_log(std::move(kept));
  }
  const bool others_run = buckets_.has_run();
  Bucket& added = buckets_.add(std::move(fresh));
  // Where no step has a plan yet, the next is the likeliest to be this one again, and waits.
  others_run ? making_.make_plan_beside(added) : making_.make_first_plan(added);
  buckets_.leave();
  retire_buckets();
  give_back_unused(log.ops.size());
}

void Plans::finish_planned_step(Bucket& of, const RanStep& ran) {
  of.rows.add(ran.rows.take());
  if (making_.uses_in_place())
    keep_hot_rows_near(of, ran.rows, frames() - std::min(frames(), executor_->held_chunks()));
  switch (of.sections.step_ended(ran.seen, {.first = of.plan.first_parts(),
                                            .least_time = of.plan.least_times(),
                                            .chunk = options_.chunk,
                                            .frames = frames()})) {
    case SectionLearner::Outcome::observed:  // slowed down, so its times say nothing
      return;
    case SectionLearner::Outcome::changed:
      return cut_into_sections_of(of, ran.seen);
    case SectionLearner::Outcome::nothing:
      break;
  }
  reports_.tell_why_no_plan(of);
  if (of.is_by_likeness()) {
    constexpr std::uint64_t often = 2;
    of.plan.measure(ran.measured, machine());
    if (of.runs() < often) return;
    of.is_planned_by_likeness(false);
    return making_.make_plan_beside(of);
  }
  if (executor_->traits().times_later) return measure_later(of);
  bool wants_another = of.plan.measure(ran.measured, machine());
  const bool by_prices = options_.policy == "vedette" || options_.policy == "autotm";  // others try, or use none
  if (by_prices && of.plan.has_policy() && !of.plan.is_in_draft())
    wants_another |= making_.price_in_place(of, ran.measured);
  if (wants_another && !of.sections.waits_for_plan()) making_.make_plan_beside(of);
}

std::optional<Executor::StepTimes> Plans::take_times(bool wait) {
  auto known = executor_->take_times(wait);
  if (known) foresight_.set_times(known->step, known->times);
  return known;
}

// The times of ops that were announced before they ran: the host waits for the profiled step alone. False: the step was
// not timed, since it began as one that follows a settled plan.
bool Plans::replace_times(StepLog& log) {
  const auto known = take_times(true);
  if (!known || known->step != logger_.step() || known->times.size() != log.ops.size()) return false;
  for (std::size_t i = 0; i < log.ops.size(); ++i) log.ops[i].time = known->times[i];
  return true;
}

void Plans::measure_later(Bucket& ran) {
  const auto known = take_times(false);
  if (!known || known->step < ran.follows_since()) return;
  Nanoseconds stall;
  for (const Nanoseconds each : known->stalls) stall += each;
  if (ran.plan.measure({.time = known->whole,
                        .stall = stall,
                        .recomputing = known->recomputing,
                        .times = known->times,
                        .stalls = known->stalls,
                        .for_room = known->for_room},
                       machine()))
    making_.make_plan_beside(ran);
}

// The log of the step that ended, with its large ops in sections, is planned anew. Steps go on by the plan before.
void Plans::cut_into_sections_of(Bucket& ran, std::span<const ObservedOp> seen) {
  StepLog log = logger_.finished(arena_);
  for (std::uint32_t i = 0; i < log.ops.size(); ++i) log.ops[i].time = ran.plan.least_time_of(i);
  making_.replace_by(ran, ran.plan.in_sections(cut_into_sections(std::move(log), ran.sections.sectioned(seen))));
}

void Plans::retire_buckets() {
  constexpr std::uint64_t part = 4;  // of the arena's addresses: the others are for tensors that live
  while (const auto gone = buckets_.retire({arena_.bytes().value / part})) gone->addresses().give_back(arena_);
}

bool Plans::retire_idle_bucket() {
  const auto gone = buckets_.retire_idle();
  if (gone != nullptr) gone->addresses().give_back(arena_);
  return gone != nullptr;
}

// --- what is told of plans -------------------------------------------------------------------------------------------

const Trace* Plans::trace() const noexcept {
  return buckets_.latest() == nullptr ? nullptr : &buckets_.latest()->told_program();
}

std::vector<PlannedStep> Plans::planned_steps() const {
  std::vector<PlannedStep> steps;
  for (const auto& bucket : buckets_.all()) steps.push_back(reports_.planned_step(*bucket));
  return steps;
}

}  // namespace vedette::detail
