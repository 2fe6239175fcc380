// One step, op by op: it is logged; while it repeats the ops of a bucket, the bucket's plan runs beside it.
#include <algorithm>
#include <functional>
#include <iterator>

#include "engine/engine.h"
#include "model/wear.h"
#include "os/signals.h"
#include "session/core.h"
#include "session/like_log.h"
#include "session/registry.h"

namespace vedette::detail {

using Stage = SectionLearner::Stage;

void SessionCore::push_layer(std::string_view name, Phase phase) {
  const std::lock_guard lock(mutex_);
  logger_.push_layer(name, phase);
}

void SessionCore::pop_layer() {
  const std::lock_guard lock(mutex_);
  logger_.pop_layer();
}

void SessionCore::mark_layer(std::string_view name, Phase phase) {
  const std::lock_guard lock(mutex_);
  logger_.mark_layer(name, phase);
}

void SessionCore::begin_step() {
  come_first_for_segv();
  const auto taken = plans_.wait_for_made();
  const std::lock_guard lock(mutex_);
  for (const auto& plan : taken) plans_.making().take_plan(*plan);
  begin_.thread = std::this_thread::get_id();
  follow_budget();
  Counters before = executor_->counters();
  count_recomputed(before);
  if (!signs_.has_begun()) signs_.first_step_begins(executor_->program().now());
  if (rest_.rests()) {
    if (rest_.goes_on(before)) return pass_step();
    executor_->end_rest();
  }
  // Profiling slows ops down, and plans want their usual times: the step before has most of them.
  if (profiled_ || options_.profile == ProfileTicks::operands) {
    times_.forget_usual();
  } else {
    times_.remember_as_usual(logger_.hashes(), logger_.log().ops);
  }
  logger_.begin_step();
  if (recomputer_ != nullptr) recomputer_->lineage().forget();
  op_.begin_step();
  rows_.begin_step();
  plans_.begin_step();
  begin_.tick += ticks_of_a_step;
  const Nanoseconds now = executor_->program().now();
  times_.begin_step(now);
  begin_.counters = executor_->counters();
  count_recomputed(begin_.counters);
  executor_->stalled_since_last_asked();
  executor_->begin_step(logger_.step());
  if (options_.observer != nullptr) options_.observer->step_began(logger_.step(), now);
  if (logger_.step() > options_.warmup_steps && !profiled_) start_profiling();
}

void SessionCore::hear_ops() noexcept {
  if (rest_.rests()) executor_->end_rest();
  rest_.end();
}

// One that is not heard: what the engine knows of next uses would be wrong in it.
void SessionCore::pass_step() {
  if (plans_.current() != nullptr) executor_->forget_plan();
  plans_.leave();
  logger_.pass_step();
  signs_.step_ended("planned", executor_->program().now());
  executor_->begin_step(logger_.step());
}

// The step's log ends before its program does: later ops run as those between steps do, and nothing is learned.
void SessionCore::cut_step() {
  if (recomputer_ != nullptr) recomputer_->make_all();
  const std::lock_guard lock(mutex_);
  logger_.end_step();
  executor_->end_step();
  if (recomputer_ != nullptr) recomputer_->lineage().forget();
  report_step_end(executor_->program().now());
  finish_profiling();
  if (plans_.current() != nullptr) executor_->forget_plan();
  plans_.leave();
  messages_.post("a step has had " + std::to_string(most_ops_of_a_step) +
                 " ops, more than are planned for: the rest of it runs on demand; begin a step for each update of the "
                 "parameters");
}

// --- an op begins ----------------------------------------------------------------------------------------------------

void SessionCore::add_operands(std::span<const void* const> addresses, bool written, OperandList& logged,
                               std::uint64_t& hash, std::uint64_t& kind) {
  for (const void* address : addresses) {
    if (owner_of(address) != this) continue;
    const auto found = arena_.holding(address);
    if (found == arena_.tensors().end()) {
      if (const auto small = arena_.slab_chunk_that_may_leave(address)) op_.small_operand(*small);
      continue;
    }
    const auto& [offset, live] = *found;
    if (!live.small) hash = mix(hash, live.bytes.value);  // other steps have it in the slab
    if (live.kind == TensorKind::weight || live.kind == TensorKind::optimizer) kind = mix(kind, offset);
    std::uint32_t index = no_log_tensor;
    if (logger_.running()) logged.push_back(index = logger_.tensor(offset, live));
    op_.operand(arena_.chunks_of(offset, live.bytes.value), index, written);
  }
}

// Which parts an op touches changes from step to step, so only their tensors tell one step from another.
void SessionCore::add_parts(std::span<const vedette::Part> parts, LoggedOp& op, std::uint64_t& hash) {
  std::uint64_t before = ~std::uint64_t{0};
  for (const vedette::Part& part : parts) {
    if (owner_of(part.first) != this) continue;
    const auto found = arena_.holding(part.first);
    if (found == arena_.tensors().end()) continue;
    const auto& [offset, live] = *found;
    const std::uint64_t begin = arena_.offset_of(part.first);
    const ChunkRange chunks = arena_.chunks_of(begin, std::min(part.bytes.value, offset + live.bytes.value - begin));
    op_.operand(chunks, no_log_tensor, part.written);
    if (before != offset) hash = mix(hash, ~live.bytes.value);
    before = offset;
    if (!logger_.running()) continue;
    rows_.touch(logger_.next_op(), chunks);
    const std::uint32_t index = logger_.tensor(offset, live);
    logger_.touched_in_parts(index);
    if (op.reads.empty() || op.reads.back() != index) op.reads.push_back(index);
    if (part.written && (op.writes.empty() || op.writes.back() != index)) op.writes.push_back(index);
  }
}

std::uint32_t SessionCore::log_op(std::string_view name, LoggedOp op, std::uint64_t hash, std::uint64_t kind) {
  op.name = logger_.name_of_next_op(name);
  const std::uint32_t index = logger_.begin_op(std::move(op), hash, kind);
  op_.planned_as(index);
  plans_.follow(index);
  if (pages_ != nullptr) pages_->op_begins(index, logger_.log().ops.back(), logger_.log().tensors);
  if (plans_.current() != nullptr) find_sections(index);
  return index;
}

// The part of the plan with which the op begins, and whether its operands are observed.
void SessionCore::find_sections(std::uint32_t index) {
  Bucket& bucket = *plans_.current();
  op_.planned_as(bucket.plan.first_part(index));
  const bool observed = bucket.sections.observes(index);
  const std::vector<WatchedSection>& sections = bucket.sections.of(index);
  if (!sections.empty() && sections.front().touched.size() == op_.operands().size()) {
    op_.cut(sections, executor_->early_touches());
    bucket.sections.begins_after(index, 0, logger_.events());
  } else if (!sections.empty()) {
    bucket.sections.failed(index);  // another op than was observed
  }
  if (observed || !sections.empty()) op_.remember(index, observed);
  bucket.sections.time_op(index);
}

Executor::Part SessionCore::part_now(std::span<const ChunkRange> operands) {
  Executor::Part part{
      .tick = begin_.tick + op_.part(), .operands = operands, .step_begins = begin_.tick, .written = op_.written()};
  if (!logger_.running() || plans_.current() == nullptr) return part;
  const StepPlan& plan = plans_.current()->plan;
  if (op_.in_sections()) part.operands_of_whole_op = op_.operands();
  if (plan.has_failed()) return part;
  part.planned = true;
  part.moves = plan.moves_at(op_.part());
  part.places = plan.places();
  if (plans_.takes_over()) part.start = &plan.start();
  part.frames_to_come = plan.frames_to_come(op_.part());
  part.repeats = !op_.needs_more_than_operands() && !op_.observed();
  return part;
}

void SessionCore::begin_op(std::string_view name, std::span<const void* const> reads,
                           std::span<const void* const> writes, std::span<const vedette::Part> parts, Bytes result) {
  if (op_depth_++ > 0) return;  // an op inside an op is part of it
  if (logger_.running() && logger_.next_op() == most_ops_of_a_step) cut_step();
  std::uint32_t index = 0;
  std::vector<ChunkRange> operands;
  bool in_step = false, left_plan = false;
  const Ahead* ahead = nullptr;
  {
    const std::lock_guard lock(mutex_);
    op_.begin();
    op_thread_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    in_step = logger_.running();
    std::uint64_t hash = std::hash<std::string_view>{}(name);
    std::uint64_t kind = mix(mix(hash, reads.size()), writes.size());
    LoggedOp op;
    op.named_reads = static_cast<std::uint32_t>(reads.size());
    add_operands(reads, false, op.reads, hash, kind);
    hash = mix(hash, reads.size());
    add_operands(writes, true, op.writes, hash, kind);
    add_parts(parts, op, hash);
    const Bucket* const followed = plans_.current();
    if (!in_step)
      if (const auto sentence = signs_.op_without_a_step()) messages_.post(*sentence);
    if (in_step) index = log_op(name, std::move(op), hash, kind);
    left_plan = followed != nullptr && followed != plans_.current();
    if (recomputer_ != nullptr && in_step) recomputer_->rest(drops_nothing());
    if (in_step && pages_ == nullptr) ahead = plans_.predict();
    if (op_.needs_more_than_operands()) operands = op_.needed();
  }
  if (may_drop() && in_step) make_before_op(index, left_plan);
  Executor::Part part = part_now(op_.needs_more_than_operands() ? operands : op_.operands());
  part.ahead = ahead;
  part.result = result;
  executor_->begin_op({index}, name, part);
  if (in_step && pages_ != nullptr) pages_->op_is_ready();
  const Nanoseconds stalled = executor_->stalled_since_last_asked();
  if (!in_step) return;
  // Where the op waited for nothing, all since the last op's end is its own: the clock need not be asked.
  const Bucket* const bucket = plans_.current();
  const bool makes = may_drop() && !executor_->traits().times_later;  // which is no op's time
  const bool asks = stalled.value != 0 || options_.observer != nullptr || pages_ != nullptr || makes ||
                    (bucket != nullptr && bucket->sections.stage() == Stage::timing);
  const Nanoseconds began = asks ? executor_->program().now() : times_.last_end();
  times_.begin_op(began, stalled);
  if (options_.observer != nullptr) options_.observer->op_began(logger_.step(), {index}, name, began);
  if (op_.observed()) begin_observing(0, 0);
}

// --- sections of the running op --------------------------------------------------------------------------------------

void SessionCore::begin_observing(std::uint32_t birth, std::uint64_t bytes) {
  const std::uint32_t after_event = birth == 0 ? logger_.log().ops.back().events.begin : logger_.events();
  op_.observe(birth, bytes, after_event);
  executor_->observe(op_.operands());
}

void SessionCore::end_observing() {
  std::vector<char>& touched = op_.touched();
  for (std::size_t k = 0; k < touched.size(); ++k) touched[k] = executor_->was_touched(op_.operands()[k]) ? 1 : 0;
}

void SessionCore::before_birth(std::uint64_t bytes) {
  if (op_.section_begins_with(bytes)) next_section(true);
  if (op_.observed()) {
    const std::lock_guard lock(mutex_);  // other threads count events too
    end_observing();
    begin_observing(op_.births() + 1, bytes);
  }
  if (Bucket* const bucket = plans_.current(); bucket != nullptr && bucket->sections.stage() == Stage::timing)
    bucket->sections.add_time(logger_.next_op() - 1, count_time_until(executor_->program().now()));
  op_.count_birth();
}

Nanoseconds SessionCore::count_time_until(Nanoseconds now) {
  return times_.count_until(now, executor_->stalled_since_last_asked());
}

std::span<const OpMoves::Departure> SessionCore::departures() const {
  if (!logger_.running() || plans_.current() == nullptr) return {};
  return plans_.current()->plan.moves_at(op_.part()).departures;
}

void SessionCore::next_section(bool runs) {
  count_time_until(executor_->program().now());
  const std::span<const OpMoves::Departure> leave = departures();
  std::vector<ChunkRange> operands, drops;
  std::vector<OpMoves::Departure> others;
  if (may_drop()) others = keep_what_cannot_be_made(leave, drops);
  {
    const std::lock_guard lock(mutex_);  // other threads free births
    op_.next_section();
    plans_.current()->sections.begins_after(logger_.next_op() - 1, op_.section(), logger_.events());
    if (runs) operands = op_.needed();
  }
  std::function<void()> between;
  if (!drops.empty())
    between = [&] {
      for (const ChunkRange chunks : drops) recomputer_->drop(chunks);
    };
  executor_->continue_op(may_drop() ? std::span<const OpMoves::Departure>(others) : leave, part_now(operands), between);
  const Nanoseconds stalled = executor_->stalled_since_last_asked();
  times_.next_section(executor_->program().now(), stalled);
}

// --- an op ends ------------------------------------------------------------------------------------------------------

void SessionCore::end_op() noexcept {
  if (--op_depth_ > 0) return;
  while (!op_.in_last_section()) next_section(false);
  const bool in_step = logger_.running();
  // Where ops run later, the host's clock says less of an op than the plan that the step follows.
  const bool known = in_step && executor_->traits().times_later && plans_.current() != nullptr &&
                     options_.observer == nullptr && pages_ == nullptr;
  const Nanoseconds ended = !in_step ? Nanoseconds{} : known ? times_.last_end() : executor_->program().now();
  std::uint64_t live_bytes = 0;
  if (in_step) {
    logger_.end_op();
    if (options_.observer != nullptr || op_.observed()) {
      const std::lock_guard lock(mutex_);
      live_bytes = arena_.live_bytes();
      if (op_.observed()) end_observing();
    }
  }
  if (in_step && pages_ != nullptr) pages_->op_ended();
  end_part();
  if (!in_step) return;
  const std::uint32_t index = logger_.next_op() - 1;
  const Nanoseconds took = count_time_until(ended);
  Bucket* const bucket = plans_.current();
  if (bucket != nullptr) bucket->sections.add_time(index, took);
  logger_.took(known ? bucket->plan.least_time_of(index) : times_.of_latest(op_.section() + 1));
  if (op_.in_sections() && executor_->early_touches() != op_.early_before()) bucket->sections.failed(index);
  times_.end_op(pages_ != nullptr ? executor_->program().now() : ended);  // looking at pages is no op's compute
  report_op_end(index, ended, live_bytes);
  if (recomputer_ != nullptr) after_op(index);
}

void SessionCore::report_op_end(std::uint32_t index, Nanoseconds ended, std::uint64_t live_bytes) {
  if (options_.observer == nullptr) return;
  options_.observer->sampled(logger_.step(), {index}, {executor_->counters().resident_bytes.value}, {live_bytes});
  options_.observer->op_ended(logger_.step(), {index}, ended);
}

// --- a step ends -----------------------------------------------------------------------------------------------------

std::string_view SessionCore::phase() const noexcept {
  const std::lock_guard lock(mutex_);
  return phase_now();
}

std::string_view SessionCore::phase_now() const noexcept {
  if (logger_.step() <= options_.warmup_steps) return "warm-up";
  if (rest_.rests()) return "planned";
  const Bucket* const bucket = plans_.current();
  if (plans_.follows_plan()) return bucket->sections.stage() != Stage::observing ? "planned" : "profiling";
  return plans_.is_foreseen() ? "foreseen" : "profiling";
}

// An op that is not heard may wait in a system call for what is away, where the memory allows that. Ops of a GPU have
// no sections.
bool SessionCore::is_settled() const noexcept {
  const Bucket* const bucket = plans_.current();
  const bool learned =
      bucket == nullptr || executor_->traits().whole_tensors || bucket->sections.stage() == Stage::learned;
  return options_.observer == nullptr && !plans_.makes_any() && learned && executor_->may_rest();
}

void SessionCore::report_step_end(Nanoseconds now) {
  if (options_.observer == nullptr) return;
  Counters of_step = executor_->counters();
  count_recomputed(of_step);
  of_step.live_bytes.value = arena_.live_bytes();
  of_step.peak_bytes.value = arena_.peak_bytes();
  for (auto counter : {&Counters::bytes_in, &Counters::bytes_out, &Counters::bytes_dropped, &Counters::far_bytes_in,
                       &Counters::far_bytes_out, &Counters::moved_between_slow_tiers, &Counters::bytes_in_place,
                       &Counters::bytes_recomputed})
    of_step.*counter -= begin_.counters.*counter;
  for (auto counter : {&Counters::stall_count, &Counters::stall_ns, &Counters::faults, &Counters::ops,
                       &Counters::ops_recomputed, &Counters::recompute_ns})
    of_step.*counter -= begin_.counters.*counter;
  of_step.steps = 1;
  of_step.disk_bytes_out = written_to_disk(of_step, machine());
  of_step.gpu = executor_->gpu_bytes();
  options_.observer->step_ran(logger_.step(), phase_now(),
                              plans_.runs_whole() ? std::optional(plans_.current()->id()) : std::nullopt);
  options_.observer->step_ended(logger_.step(), now, of_step);
}

void SessionCore::end_step() noexcept {
  if (recomputer_ != nullptr) recomputer_->make_all();
  const std::lock_guard lock(mutex_);
  executor_->end_step();
  if (!logger_.running()) return;
  logger_.end_step();
  if (recomputer_ != nullptr) recomputer_->lineage().forget();
  const Nanoseconds now = executor_->program().now();
  Counters then = executor_->counters();
  count_recomputed(then);
  const auto since = [&](std::uint64_t Counters::*counter) {
    return Nanoseconds{static_cast<std::int64_t>(then.*counter - begin_.counters.*counter)};
  };
  report_step_end(now);
  signs_.step_ended(phase_now(), now);
  finish_profiling();
  const bool rested = rest_.rests();
  rest_.step_ended(then, logger_.step() > options_.warmup_steps && is_settled());
  if (!rested && rest_.rests()) executor_->begin_rest();
  if (logger_.step() <= options_.warmup_steps || logger_.log().ops.empty()) return plans_.leave();
  plans_.end_step({.measured = {.time = times_.step_time(now),
                                .stall = since(&Counters::stall_ns),
                                .recomputing = since(&Counters::recompute_ns),
                                .times = times_.times(),
                                .stalls = times_.stalls()},
                   .seen = op_.seen(),
                   .rows = rows_,
                   .recomputer = recomputer_.get(),
                   .so_far = then});
}

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
  if (logger_.step() > options_.warmup_steps && !logger_.log().ops.empty()) profiled_ = true;
}

}  // namespace vedette::detail
