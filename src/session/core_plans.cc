// From the log of a step to a plan that runs: the profiling step, new buckets, plans that change, and reports of them.
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "base/readable.h"
#include "engine/engine.h"
#include "session/core.h"
#include "session/like_log.h"

namespace vedette::detail {

void SessionCore::start_profiling() {
  if (options_.profile == ProfileTicks::operands) return;
  if (Engine* const engine = executor_->pages(); engine != nullptr)
    pages_ = PageProfile::start({.engine = engine,
                                 .arena = arena_.base(),
                                 .ticks = options_.profile,
                                 .chunk = options_.chunk,
                                 .chunks = static_cast<std::uint32_t>(arena_.bytes().value / options_.chunk.value),
                                 .tracker = tracking_.tracker,
                                 .passed_over = tracking_.passed_over,
                                 .or_mprotect = options_.tracker == "best",
                                 .on_message = [this](std::string_view sentence) { messages_.post(sentence); }});
  if (tracking_.of_gpu != nullptr)
    pages_ = PageProfile::start_with(std::move(tracking_.of_gpu),
                                     {.arena = arena_.base(),
                                      .ticks = options_.profile,
                                      .on_message = [this](std::string_view sentence) { messages_.post(sentence); }});
  if (pages_ != nullptr) {
    for (const auto& [offset, live] : arena_.tensors())
      pages_->lives(offset, live.bytes.value, logger_.tensor(offset, live));
    pages_->watch();
  }
  times_.end_op(executor_->program().now());
}

void SessionCore::finish_profiling() {
  if (pages_ != nullptr) {
    pages_->finish(logger_.log_to_finish());
    pages_.reset();
    times_.replace_by_usual(logger_.hashes(), logger_.log_to_finish().ops);
  }
  if (logger_.step() > options_.warmup_steps && !logger_.log().ops.empty()) once_.profiled = true;
}

namespace {

// Logging and planning a long step takes tens of megabytes in small pieces for a while, which malloc would keep: 43 MiB
// of a step of 5,600 ops that L-BFGS made. It takes half a millisecond.
void give_back_unused([[maybe_unused]] std::size_t ops) {
#ifdef __GLIBC__
  constexpr std::size_t many = 2'000;
  static std::atomic<std::size_t> since_then = 0;  // relaxed: a hint
  if (since_then.fetch_add(ops, std::memory_order_relaxed) + ops <= many) return;
  since_then.store(0, std::memory_order_relaxed);
  ::malloc_trim(0);
#endif
}

}  // namespace

// A new sequence of ops.
void SessionCore::learn() {
  const std::size_t used = logger_.log().tensors.size();  // others are appended
  StepLog& log = logger_.finished(arena_);
  const bool measured = !executor_->traits().times_later || replace_times(log);
  const std::optional<Bytes> range = executor_->range();
  AddressPlan addresses(log, logger_.events(), arena_, options_.chunk,
                        range ? Heap::Chunks::of_one_tensor : Heap::Chunks::shared);
  std::vector<std::uint32_t> logged;
  auto fresh = std::make_unique<Bucket>(buckets_.next_id(), log, logger_.hashes(), std::move(addresses),
                                        StepPlan::Options{.chunk = options_.chunk,
                                                          .policy = options_.policy,
                                                          .seed = options_.seed,
                                                          .range = range,
                                                          .fast_memory = {frames() * options_.chunk.value}},
                                        &logged);
  logger_.tell_births(logged);
  if (options_.observer != nullptr) options_.observer->profiled(logger_.step(), fresh->id(), fresh->program());
  if (!measured) fresh->plan.was_not_measured();
  fresh->profiled(logger_.step(),
                  rows_.chunks() + std::min(arena_.slab_chunks_that_may_leave(), most_slab_chunks_that_stay(frames())));
  fresh->rows.add(rows_.take());
  if (recomputer_ != nullptr) fresh->can_recompute(log, recomputer_->remembered());
  advise_on_rows();
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
  others_run ? make_plan_beside(added) : make_first_plan(added);
  buckets_.leave();
  retire_buckets();
  give_back_unused(log.ops.size());
}

void SessionCore::finish_planned_step(Bucket& ran, const StepPlan::Measured& measured) {
  ran.rows.add(rows_.take());
  switch (ran.sections.step_ended(op_.seen(), {.first = ran.plan.first_parts(),
                                               .least_time = ran.plan.least_times(),
                                               .chunk = options_.chunk,
                                               .frames = frames()})) {
    case SectionLearner::Outcome::observed:  // slowed down, so its times say nothing
      return;
    case SectionLearner::Outcome::changed:
      return cut_into_sections_of(ran);
    case SectionLearner::Outcome::nothing:
      break;
  }
  tell_why_no_plan(ran);
  if (ran.is_by_likeness()) {
    constexpr std::uint64_t often = 2;
    ran.plan.measure(measured, machine_);
    if (ran.runs() < often) return;
    ran.is_planned_by_likeness(false);
    return make_plan_beside(ran);
  }
  if (executor_->traits().times_later) return measure_later(ran);
  const bool wants_another = ran.plan.measure(measured, machine_);
  if (wants_another && !ran.sections.waits_for_plan()) make_plan_beside(ran);
}

std::optional<Executor::StepTimes> SessionCore::take_times(bool wait) {
  auto known = executor_->take_times(wait);
  if (known) foresight_.set_times(known->step, known->times);
  return known;
}

// The times of ops that were announced before they ran: the host waits for the profiled step alone. False: the step was
// not timed, since it began as one that follows a settled plan.
bool SessionCore::replace_times(StepLog& log) {
  const auto known = take_times(true);
  if (!known || known->step != logger_.step() || known->times.size() != log.ops.size()) return false;
  for (std::size_t i = 0; i < log.ops.size(); ++i) log.ops[i].time = known->times[i];
  return true;
}

void SessionCore::measure_later(Bucket& ran) {
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
                       machine_))
    make_plan_beside(ran);
}

// The log of the step that ended, with its large ops in sections, is planned anew. Steps go on by the plan before.
void SessionCore::cut_into_sections_of(Bucket& ran) {
  StepLog log = logger_.finished(arena_);
  for (std::uint32_t i = 0; i < log.ops.size(); ++i) log.ops[i].time = ran.plan.least_time_of(i);
  StepPlan cut = ran.plan.in_sections(cut_into_sections(std::move(log), ran.sections.sectioned(op_.seen())));
  for (const auto& plan : making_)
    if (plan->bucket() == ran.id()) plan->give_up();  // of the step as it was
  if (executor_->traits().replays) {
    replace_plan(ran, std::move(cut));
    return make_plan(ran);
  }
  size_machine_for(ran);
  making_.push_back(std::make_unique<PlanInMaking>(ran.id(), std::move(cut), machine_, *executor_,
                                                   PlanInMaking::Meanwhile::steps_without_plan));
  making_.back()->made_for(frames());
}

void SessionCore::replace_plan(Bucket& bucket, StepPlan replacement) {
  if (bucket.sections.waits_for_plan()) {
    bucket.forget_other_sizes();  // they have the sections of before
    bucket.plan = std::move(replacement);
    bucket.sections.plan_is_there();
  } else {
    bucket.replace_for_size(std::move(replacement));
  }
  executor_->forget_plan();
}

// --- plans -----------------------------------------------------------------------------------------------------------

void SessionCore::size_machine_for(Bucket& bucket) {
  const std::uint32_t free = frames() - std::min(frames(), executor_->held_chunks());
  machine_.tiers[0].capacity = {(free - room_for_rows(free, bucket.unplanned())) * options_.chunk.value};
  machine_.habits.plans_in_turns = buckets_.in_turns();
  bucket.make_for_turns(machine_.habits.plans_in_turns);
}

void SessionCore::make_plan(Bucket& bucket) {
  if (executor_->traits().whole_tensors) executor_->forget_plan();  // its places go with the plan
  size_machine_for(bucket);
  bucket.made_for(frames());
  plan_is_made(bucket, bucket.plan.prepare(machine_, *executor_));
}

// A search for recomputations takes tens of seconds where a step has many ops. A GPU goes on meanwhile, by a plan that
// only moves.
//
// The program waits for the plan, but not for ever: in that time several steps without one would have run. Where it is
// not there by then, steps go on without, until one begins that finds it.
bool SessionCore::searches_long(const Bucket& bucket) const noexcept {
  constexpr std::size_t many_ops = 500;
  return machine_.can_recompute && executor_->traits().times_later && bucket.ops() >= many_ops &&
         !executor_->traits().replays;
}

void SessionCore::make_first_plan(Bucket& bucket) {
  const bool takes_long = searches_long(bucket);
  if (takes_long) machine_.can_recompute = false;
  const bool is_there = make_plan_in_time(bucket);
  if (!takes_long) return;
  machine_.can_recompute = true;
  if (is_there) begin_plan(bucket, PlanInMaking::Meanwhile::steps_by_plan_before);
}

bool SessionCore::make_plan_in_time(Bucket& bucket) {
  constexpr Nanoseconds least{5'000'000'000};
  constexpr std::int64_t steps = 8;
  if (executor_->traits().replays) return make_plan(bucket), true;
  Nanoseconds patience;
  for (const Nanoseconds time : bucket.plan.least_times()) patience += time;
  patience = std::max(least, Nanoseconds{patience.value * steps});
  begin_plan(bucket, PlanInMaking::Meanwhile::steps_by_plan_before);
  if (!making_.back()->is_made_within(std::chrono::nanoseconds(patience.value))) return bucket.waits_for_plan(), false;
  const std::unique_ptr<PlanInMaking> made = std::move(making_.back());
  making_.pop_back();
  return take_plan(*made), true;
}

// Steps go on by the plan before, or, where the bucket has none yet, as steps without a plan do. The plan of a program
// on another clock is waited for: a replay repeats it.
void SessionCore::make_plan_beside(Bucket& bucket) {
  if (bucket.plan.goes_back() || executor_->traits().replays) return make_plan(bucket);
  const bool first = bucket.runs() == 0;
  if (first) bucket.waits_for_plan();
  begin_plan(bucket,
             first ? PlanInMaking::Meanwhile::steps_without_plan : PlanInMaking::Meanwhile::steps_by_plan_before);
}

void SessionCore::begin_plan(Bucket& bucket, PlanInMaking::Meanwhile meanwhile) {
  size_machine_for(bucket);
  making_.push_back(std::make_unique<PlanInMaking>(bucket.id(), bucket.plan.begin(machine_, *executor_), meanwhile));
  making_.back()->made_for(frames());
}

// Plans that were made as if no other came between their steps are made anew. Published policies know no turns.
void SessionCore::plan_for_turns() {
  if (!buckets_.in_turns() || options_.policy != "vedette") return;
  for (const auto& bucket : buckets_.all())
    if (bucket->runs() > 0 && !bucket->is_for_turns() && !bucket->is_by_likeness() && bucket->plan.has_policy() &&
        !bucket->plan.is_in_draft())
      make_plan_beside(*bucket);
}

// Between two steps.
void SessionCore::take_plan(PlanInMaking& made) {
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
  if (made.frames() != frames()) frames_.plans_due = true;
  plan_is_made(*bucket, bucket->plan.finish(std::move(draft)));
  if (made.is_of_moves_alone()) begin_plan(*bucket, PlanInMaking::Meanwhile::steps_by_plan_before);
  give_back_unused(bucket->ops());
}

void SessionCore::plan_is_made(Bucket& bucket, const Result<void>& made) {
  // A step that has no plan by likeness goes on as it would have without.
  bucket.why_no_plan = made || bucket.is_by_likeness() ? std::string() : made.error().message;
  tell_why_no_plan(bucket);
  say_what_places_came_to(bucket);
  if (executor_->traits().whole_tensors) announce_leaving(bucket.plan);
  tell_plan(bucket);
}

void SessionCore::say_what_places_came_to(Bucket& bucket) {
  while (const auto sentence = logger_.named_places().found_nothing()) messages_.post(*sentence);
  if (bucket.plan.breaks_rules())
    messages_.post("place(): with all tensors where the rules have them there is no plan for fast memory of " +
                   readable(budget()) + "; steps are planned without the rules");
}

// A program with memory to spare hears why its guard does nothing.
void SessionCore::say_that_nothing_moves(const Bucket& ran, const Counters& so_far) {
  constexpr std::uint64_t runs = 3;
  const std::uint64_t moved = so_far.bytes_in.value + so_far.bytes_out.value + so_far.bytes_dropped.value +
                              so_far.bytes_recomputed.value + so_far.bytes_in_place.value;
  if (once_.said_nothing_moves || ran.runs() < runs || moved > 0 || ran.unplanned() > 0) return;
  once_.said_nothing_moves = true;
  messages_.post("all of a step fits: its tensors take " + readable(peak_bytes(ran.plan.planned_trace())) +
                 " at most, fast memory has " + readable(budget()) + ", and nothing moves");
}

// An op that does not fit as a whole may fit in sections.
void SessionCore::tell_why_no_plan(Bucket& bucket) {
  if (bucket.why_no_plan.empty() || bucket.sections.may_change()) return;
  messages_.post(std::exchange(bucket.why_no_plan, {}));
}

void SessionCore::tell_plan(Bucket& bucket) {
  bucket.planned(logger_.step());
  if (options_.on_progress && !bucket.plan.has_failed())
    if (const auto line = once_.signs.planned(logger_.step(), bucket.plan.planned_trace(), machine_, bucket.plan.plan(),
                                              budget(), rated_endurance(options_.max_writes)))
      messages_.post_progress(*line);
  report_places(bucket);
  if (options_.observer == nullptr) return;
  const std::span<const std::uint32_t> first = bucket.plan.first_parts();
  options_.observer->planned(logger_.step(), bucket.id(), whole_ops(bucket.plan.planned_trace(), first),
                             whole_ops(bucket.plan.plan(), first));
}

void SessionCore::announce_leaving(const StepPlan& plan) {
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

void SessionCore::report_places(const Bucket& placed) const {
  if (options_.observer == nullptr) return;
  std::vector<Placed> units, tensors;
  for (const UnitChunks& where : placed.plan.units().where)
    units.push_back({.index = static_cast<std::uint32_t>(units.size()),
                     .offset = {where.first * options_.chunk.value},
                     .bytes = {where.count * options_.chunk.value}});
  for (const Bucket::Extent& place : placed.program_places())
    tensors.push_back(
        {.index = static_cast<std::uint32_t>(tensors.size()), .offset = {place.offset}, .bytes = place.bytes});
  options_.observer->placed(logger_.step(), placed.id(), units, tensors);
}

void SessionCore::retire_buckets() {
  while (const auto gone = buckets_.retire())
    if (gone->addresses().zone_bytes() > 0)
      arena_.release_zone(gone->addresses().zone(), gone->addresses().zone_bytes());
}

// A row that is away brings its whole chunk: of a table of 1 GiB, chunks of 2 MiB moved thirty times the bytes of 64
// KiB (docs/results.md).
void SessionCore::advise_on_rows() {
  constexpr Bytes suitable = 64_KiB;
  if (once_.advised_on_rows || rows_.chunks() == 0 || options_.chunk <= suitable ||
      arena_.peak_bytes() <= options_.fast_memory.value)
    return;
  once_.advised_on_rows = true;
  messages_.post("rows of tables are looked up, and a row that is away brings a chunk of " + readable(options_.chunk) +
                 ": with chunk = 64_KiB (train --chunk 64KiB) a step moves less");
}

// --- what is told of plans -------------------------------------------------------------------------------------------

const Trace* SessionCore::trace() const noexcept {
  const std::lock_guard lock(mutex_);
  return buckets_.latest() == nullptr ? nullptr : &buckets_.latest()->told_program();
}

Rows SessionCore::rows_of(const Bucket& bucket) const {
  std::vector<ChunkRange> in_parts;
  for (const Bucket::Extent& t : bucket.in_parts()) in_parts.push_back(arena_.chunks_of(t.offset, t.bytes.value));
  return bucket.rows.rows(in_parts, executor_->held_chunks(), options_.chunk, bucket.plan.first_parts());
}

PlannedStep SessionCore::planned_step(const Bucket& bucket) const {
  Trace trace = bucket.plan.planned_trace();
  // An op in place may be the first to touch a tensor: there is nothing yet that it could read.
  std::vector<bool> born(trace.tensors.size());
  for (std::size_t t = 0; t < born.size(); ++t) born[t] = trace.tensors[t].persistent;
  for (Op& op : trace.ops) {
    std::erase_if(op.reads, [&](TensorIndex t) { return !born[t.value]; });
    for (const TensorIndex t : op.writes) born[t.value] = true;
  }
  Rows rows = rows_of(bucket);
  rows.always_near = {static_cast<std::uint32_t>(trace.tensors.size())};
  const Bytes always_near = {rows.held.value + bucket.unplanned() * options_.chunk.value};
  if (always_near.value > 0) {  // no plan has it as a unit, but it takes room at every op
    for (Op& op : trace.ops) op.reads.push_back({static_cast<std::uint32_t>(trace.tensors.size())});
    trace.tensors.push_back(
        {.name = "always near", .bytes = always_near, .kind = TensorKind::constant, .persistent = true});
  }
  return {.trace = std::move(trace),
          .program = bucket.plan.program_in_sections() ? bucket.plan.program_in_sections()->unpack() : bucket.program(),
          .steps = bucket.runs(),
          .rows = std::move(rows)};
}

std::vector<PlannedStep> SessionCore::planned_steps() const {
  const std::lock_guard lock(mutex_);
  std::vector<PlannedStep> steps;
  for (const auto& bucket : buckets_.all()) steps.push_back(planned_step(*bucket));
  return steps;
}

}  // namespace vedette::detail
