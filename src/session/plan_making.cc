#include "session/plan_making.h"

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

namespace vedette::detail {

void give_back_unused([[maybe_unused]] std::size_t ops) {
#ifdef __GLIBC__
  constexpr std::size_t many = 2'000;
  static std::atomic<std::size_t> since_then = 0;  // relaxed: a hint
  if (since_then.fetch_add(ops, std::memory_order_relaxed) + ops <= many) return;
  since_then.store(0, std::memory_order_relaxed);
  ::malloc_trim(0);
#endif
}

void PlanMaking::size_machine_for(Bucket& bucket) {
  const std::uint32_t free = frames() - std::min(frames(), executor_->held_chunks());
  machine_.tiers[0].capacity = {(free - room_for_rows(free, bucket.unplanned())) * options_.chunk.value};
  machine_.habits.plans_in_turns = buckets_.in_turns();
  bucket.make_for_turns(machine_.habits.plans_in_turns);
}

void PlanMaking::make_plan(Bucket& bucket) {
  if (executor_->traits().whole_tensors) executor_->forget_plan();  // its places go with the plan
  size_machine_for(bucket);
  bucket.made_for(frames());
  plan_is_made(bucket, bucket.plan.prepare(machine_, *executor_));
}

// A search for recomputations takes up to tens of seconds where a step has many ops. Its first plan has a part of one;
// the whole search follows beside the program. Published policies have one plan, whatever time it takes.
std::unique_ptr<StepPlan::Draft> PlanMaking::draft_of(StepPlan& plan, Search search) {
  constexpr std::chrono::milliseconds first_search{700};
  auto draft = plan.begin(machine_, *executor_);
  if (search == Search::first && machine_.can_recompute && options_.policy == "vedette" && !executor_->traits().replays)
    draft->search_time = first_search;
  return draft;
}

// The program waits for the plan, but not for ever: in that time several steps without one would have run. Where it is
// not there by then, steps go on without, until one begins that finds it.
void PlanMaking::make_first_plan(Bucket& bucket) {
  constexpr Nanoseconds least{5'000'000'000};
  constexpr std::int64_t steps = 8;
  if (executor_->traits().replays) return make_plan(bucket);
  Nanoseconds patience;
  for (const Nanoseconds time : bucket.plan.least_times()) patience += time;
  patience = std::max(least, Nanoseconds{patience.value * steps});
  begin_plan(bucket, PlanInMaking::Meanwhile::steps_by_plan_before, Search::first);
  if (!making_.back()->is_made_within(std::chrono::nanoseconds(patience.value))) return bucket.waits_for_plan();
  const std::unique_ptr<PlanInMaking> made = std::move(making_.back());
  making_.pop_back();
  take_plan(*made);
}

// Steps go on by the plan before, or, where the bucket has none yet, as steps without a plan do. The plan of a program
// on another clock is waited for: a replay repeats it.
void PlanMaking::make_plan_beside(Bucket& bucket) {
  if (bucket.plan.goes_back() || executor_->traits().replays) return make_plan(bucket);
  const bool first = bucket.runs() == 0;
  if (first) bucket.waits_for_plan();
  first ? begin_plan(bucket, PlanInMaking::Meanwhile::steps_without_plan, Search::first)
        : begin_plan(bucket, PlanInMaking::Meanwhile::steps_by_plan_before, Search::whole);
}

void PlanMaking::begin_plan(Bucket& bucket, PlanInMaking::Meanwhile meanwhile, Search search) {
  size_machine_for(bucket);
  add(std::make_unique<PlanInMaking>(bucket.id(), draft_of(bucket.plan, search), meanwhile));
}

// Plans that were made as if no other came between their steps are made anew. Published policies know no turns.
void PlanMaking::plan_for_turns() {
  if (!buckets_.in_turns() || options_.policy != "vedette") return;
  for (const auto& bucket : buckets_.all())
    if (bucket->runs() > 0 && !bucket->is_for_turns() && !bucket->is_by_likeness() && bucket->plan.has_policy() &&
        !bucket->plan.is_in_draft())
      make_plan_beside(*bucket);
}

void PlanMaking::replace_plan(Bucket& bucket, StepPlan replacement) {
  if (bucket.sections.waits_for_plan()) {
    bucket.forget_other_sizes();  // they have the sections of before
    bucket.plan = std::move(replacement);
    bucket.sections.plan_is_there();
  } else {
    bucket.replace_for_size(std::move(replacement));
  }
  executor_->forget_plan();
}

// Between two steps.
void PlanMaking::take_plan(PlanInMaking& made) {
  Bucket* const bucket = buckets_.find(made.bucket());
  if (bucket == nullptr) return;  // it has gone meanwhile
  if (made.replacement()) replace_plan(*bucket, *std::move(made.replacement()));
  std::unique_ptr<StepPlan::Draft> draft = made.take();
  if (!draft->suits_memory()) {
    bucket->plan.take_back_policy(*draft);
    return make_plan(*bucket);
  }
  if (executor_->traits().whole_tensors) executor_->forget_plan();
  bucket->made_for(made.frames());
  if (made.frames() != frames()) plans_due_ = true;
  const bool cut_short = draft->cut_short;
  plan_is_made(*bucket, bucket->plan.finish(std::move(draft)));
  if (cut_short) begin_plan(*bucket, PlanInMaking::Meanwhile::steps_by_plan_before, Search::whole);
  give_back_unused(bucket->ops());
}

void PlanMaking::plan_is_made(Bucket& bucket, const Result<void>& made) {
  // A step that has no plan by likeness goes on as it would have without.
  bucket.why_no_plan = made || bucket.is_by_likeness() ? std::string() : made.error().message;
  reports_.tell_why_no_plan(bucket);
  reports_.say_what_places_came_to(bucket);
  if (executor_->traits().whole_tensors) announce_leaving(bucket.plan);
  reports_.tell_plan(bucket, machine_);
}

void PlanMaking::announce_leaving(const StepPlan& plan) {
  const Units& units = plan.units();
  std::vector<char> leaves(units.trace.tensors.size());
  for (const Move& move : plan.plan().moves) {
    if (move.verb == Verb::evict) leaves[move.extent.tensor.value] = 1;
  }
  std::vector<Executor::Leaving> leaving;
  for (std::uint32_t u = 0; u < leaves.size(); ++u) {
    const Tensor& unit = units.trace.tensors[u];
    if (leaves[u] != 0)
      leaving.push_back({.chunks = ChunkRange::of({units.where[u].first}, units.where[u].count),
                         .bytes = unit.bytes,
                         .persistent = unit.persistent});
  }
  if (!leaving.empty()) executor_->will_leave(leaving);
}

// The same step in other parts.
void PlanMaking::replace_by(Bucket& bucket, StepPlan cut) {
  give_up(bucket);  // of the step as it was
  if (executor_->traits().replays) {
    replace_plan(bucket, std::move(cut));
    return make_plan(bucket);
  }
  size_machine_for(bucket);
  auto draft = draft_of(cut, Search::whole);
  add(std::make_unique<PlanInMaking>(bucket.id(), std::move(cut), std::move(draft),
                                     PlanInMaking::Meanwhile::steps_without_plan));
}

void PlanMaking::make_plan_by_likeness(Bucket& bucket, const std::vector<Bucket*>& alike) {
  size_machine_for(bucket);
  auto draft = bucket.plan.begin(machine_, *executor_);
  for (const Bucket* const each : alike) draft->alike.push_back(each->plan.for_other_sizes());
  add(std::make_unique<PlanInMaking>(bucket.id(), std::move(draft), PlanInMaking::Meanwhile::steps_by_plan_before));
  if (executor_->traits().replays) making_.back()->is_made_within(std::chrono::hours(1));
}

// --- made beside -----------------------------------------------------------------------------------------------------

void PlanMaking::add(std::unique_ptr<PlanInMaking> made) {
  made->made_for(frames());
  making_.push_back(std::move(made));
}

bool PlanMaking::makes_one_by_likeness() const {
  return std::any_of(making_.begin(), making_.end(), [&](const auto& plan) {
    const Bucket* const bucket = buckets_.find(plan->bucket());
    return bucket != nullptr && bucket->is_by_likeness();
  });
}

std::vector<std::unique_ptr<PlanInMaking>> PlanMaking::wait_for_made() {
  const auto made =
      std::stable_partition(making_.begin(), making_.end(), [](const auto& plan) { return !plan->is_made_soon(); });
  std::vector<std::unique_ptr<PlanInMaking>> taken(std::make_move_iterator(made),
                                                   std::make_move_iterator(making_.end()));
  making_.erase(made, making_.end());
  return taken;
}

bool PlanMaking::take_plan_of(const Bucket& bucket) {
  const auto made =
      std::find_if(making_.begin(), making_.end(), [&](const auto& plan) { return plan->bucket() == bucket.id(); });
  if (made == making_.end() || !(*made)->is_made_within(std::chrono::nanoseconds{0})) return false;
  const std::unique_ptr<PlanInMaking> taken = std::move(*made);
  making_.erase(made);
  take_plan(*taken);
  return true;
}

void PlanMaking::give_up(const Bucket& bucket) {
  for (const auto& plan : making_)
    if (plan->bucket() == bucket.id()) plan->give_up();
}

// --- fast memory of another size -------------------------------------------------------------------------------------

std::uint32_t PlanMaking::frames_of(Bytes budget) const noexcept {
  return static_cast<std::uint32_t>(budget.value / options_.chunk.value);
}

bool PlanMaking::is_another_size(Bytes budget) const noexcept {
  const std::uint32_t now = frames_of(budget);
  return now != 0 && now != frames();
}

// Sizes may change many times in a step: plans are made for one that has lasted from one step to the next.
void PlanMaking::follow_size(Bytes budget) {
  frames_.store(frames_of(budget), std::memory_order_relaxed);
  plans_due_ = true;
  if (options_.observer != nullptr) options_.observer->resized(executor_->program().now(), budget);
  for (const auto& plan : making_) {
    const Bucket* const bucket = buckets_.find(plan->bucket());
    const bool of_sections = bucket != nullptr && bucket->sections.waits_for_plan() && plan->replacement();
    if (!of_sections) plan->give_up();
  }
  executor_->forget_plan();
  const Bytes fast{frames() * options_.chunk.value};
  const std::uint32_t small = std::exchange(left_by_slab_, 0);
  for (const auto& bucket : buckets_.all()) {
    bucket->leave_to_small_tensors(small);
    if (bucket->fit(frames(), fast, executor_->range(), logger_.step())) reports_.tell_plan(*bucket, machine_);
  }
}

// Of the sequences that ran last first, a few at a time.
void PlanMaking::plan_for_size() {
  if (!std::exchange(plans_due_, false)) return;
  constexpr std::size_t at_once = 2;
  std::vector<Bucket*> wanted;
  for (const auto& bucket : buckets_.all())
    if (bucket->planned_for() != frames() && bucket->plan.has_policy() && !bucket->plan.is_in_draft() &&
        !bucket->sections.waits_for_plan())
      wanted.push_back(bucket.get());
  std::sort(wanted.begin(), wanted.end(),
            [](const Bucket* a, const Bucket* b) { return a->last_run() > b->last_run(); });
  for (Bucket* const bucket : wanted) {
    StepPlan resized = bucket->plan.in_memory({frames() * options_.chunk.value}, executor_->range());
    if (executor_->traits().replays) {
      bucket->replace_for_size(std::move(resized));
      make_plan(*bucket);
      continue;
    }
    if (making_.size() >= at_once) {
      plans_due_ = true;
      return;
    }
    size_machine_for(*bucket);
    auto draft = draft_of(resized, Search::first);
    add(std::make_unique<PlanInMaking>(bucket->id(), std::move(resized), std::move(draft),
                                       PlanInMaking::Meanwhile::steps_by_plan_before));
  }
}

}  // namespace vedette::detail
