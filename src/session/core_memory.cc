// Fast memory of another size while the program runs. The executor changes it at once; steps that begin find it
// changed, and follow the plan that suits it best. A step without one goes by predictions until its plan is made.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/readable.h"
#include "session/core.h"
#include "session/fast_memory.h"

namespace vedette::detail {

Bytes SessionCore::budget() const noexcept { return executor_->budget() + options_.table_memory; }

// With the lock. A step's thread waits for the passes of others that it calls.
Executor::Caller SessionCore::caller() const {
  const std::thread::id here = std::this_thread::get_id(), ops = op_thread_.load(std::memory_order_relaxed);
  const bool runs = op_depth_ > 0;
  if (runs && ops == here) return Executor::Caller::in_its_op;
  const bool first = ops == std::thread::id() && begin_.thread == std::thread::id();
  return !runs && (first || ops == here || begin_.thread == here) ? Executor::Caller::between_ops
                                                                  : Executor::Caller::another_thread;
}

Result<FastMemory> SessionCore::set_fast_memory(Bytes asked, bool waits_for_turn) {
  auto got = resize(asked, waits_for_turn);
  if (got && frames_.follower != nullptr) frames_.follower->program_wants(asked);
  return got;
}

void SessionCore::follow_pressure() {
  PressureSources::Options sources = PressureSources::of_this_process();
  sources.gpu = executor_->bus_id();
  frames_.follower = std::make_unique<PressureFollower>(
      sources,
      PressureFollower::Session{.resize = [this](Bytes bytes) { return resize(bytes, /*waits_for_turn=*/false); },
                                .budget = [this] { return budget(); },
                                .least = [this] { return std::max(smallest_budget(), least_fast_memory(options_)); },
                                .say = [this](std::string_view sentence) { messages_.post(sentence); }});
}

Result<FastMemory> SessionCore::resize(Bytes asked, bool waits_for_turn) {
  if (!executor_->traits().whole_tensors) {
    SessionOptions size;
    size.fast_memory = asked;
    size.chunk = options_.chunk;
    if (auto valid = valid_fast_memory(size); !valid) return valid.error();
    if (auto fits = fits_memory_cgroup(size); !fits) return fits.error();
  }
  if (asked.value <= options_.table_memory.value)
    return Error{.cause = Cause::unsupported,
                 .message = "fast memory of " + readable_exactly(asked) + " leaves nothing beside the tables' " +
                            readable_exactly(options_.table_memory)};
  const Bytes wanted = asked - options_.table_memory;
  Executor::Caller from{};
  {
    const std::lock_guard lock(mutex_);
    from = waits_for_turn ? Executor::Caller::waits_for_turn : caller();
    if (waits_for_turn) hear_ops();  // one that rests, too
    const auto fewer = static_cast<std::uint32_t>(wanted.value / options_.chunk.value);
    const std::vector<ChunkIndex> leave = arena_.let_slab_leave(most_slab_chunks_that_stay(fewer));
    for (const ChunkIndex c : leave) executor_->release_hold(ChunkRange::one(c));
    frames_.left_by_slab += static_cast<std::uint32_t>(leave.size());
  }
  frames_.asked = true;
  auto resized = executor_->resize(wanted, from);
  if (!resized) return resized.error();
  const Bytes now = resized->now + options_.table_memory;
  if (!resized->holds.empty())
    messages_.post("fast memory is " + readable(now) + ", and " + readable(asked) + " was asked: " + resized->holds +
                   "; the rest follows as soon as it can");
  return FastMemory{.asked = asked, .now = now, .holds = std::move(resized->holds)};
}

// A step begins. Sizes may change many times in a step: plans are made for one that has lasted from one step to the
// next.
void SessionCore::follow_budget() {
  if (frames_.asked.exchange(false)) hear_ops();
  const Bytes budget = executor_->budget();
  const auto now = static_cast<std::uint32_t>(budget.value / options_.chunk.value);
  if (now == 0) return;
  if (now == frames()) {
    if (std::exchange(frames_.plans_due, false)) plan_for_size();
    return;
  }
  frames_.now.store(now, std::memory_order_relaxed);
  frames_.plans_due = true;
  hear_ops();
  if (options_.observer != nullptr) options_.observer->resized(executor_->program().now(), budget);
  fit_plans();
}

void SessionCore::fit_plans() {
  for (const auto& plan : making_) {
    const Bucket* const bucket = buckets_.find(plan->bucket());
    const bool of_sections = bucket != nullptr && bucket->sections.waits_for_plan() && plan->replacement();
    if (!of_sections) plan->give_up();
  }
  executor_->forget_plan();
  const Bytes fast{frames() * options_.chunk.value};
  const std::uint32_t small = std::exchange(frames_.left_by_slab, 0);
  for (const auto& bucket : buckets_.all()) {
    bucket->leave_to_small_tensors(small);
    if (bucket->fit(frames(), fast, executor_->range(), logger_.step())) tell_plan(*bucket);
  }
}

// Of the sequences that ran last first, a few at a time.
void SessionCore::plan_for_size() {
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
      frames_.plans_due = true;
      return;
    }
    size_machine_for(*bucket);
    const bool can_recompute = machine_.can_recompute, moves_alone = searches_long(*bucket);
    machine_.can_recompute = can_recompute && !moves_alone;
    making_.push_back(std::make_unique<PlanInMaking>(bucket->id(), std::move(resized), machine_, *executor_,
                                                     PlanInMaking::Meanwhile::steps_by_plan_before));
    making_.back()->made_for(frames());
    if (moves_alone) making_.back()->moves_alone();
    machine_.can_recompute = can_recompute;
  }
}

}  // namespace vedette::detail
