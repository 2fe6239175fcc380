#include "session/steps.h"

#include "model/wear.h"
#include "os/signals.h"

namespace vedette::detail {

void Steps::start(Tracking tracking) { profiling_.start(std::move(tracking)); }

void Steps::close() {
  logger_.end_step();
  executor_->tell_what_did_not_fit();
  profiling_.end_step(ops_.times());
  plans_.leave();
}

void Steps::forget() {
  plans_.forget();
  logger_.forget();
  ops_.forget();
}

void Steps::push_layer(std::string_view name, Phase phase) {
  const std::lock_guard lock(mutex_);
  logger_.push_layer(name, phase);
}

void Steps::pop_layer() {
  const std::lock_guard lock(mutex_);
  logger_.pop_layer();
}

void Steps::mark_layer(std::string_view name, Phase phase) {
  const std::lock_guard lock(mutex_);
  logger_.mark_layer(name, phase);
}

void Steps::begin_step() {
  come_first_for_segv();
  const auto taken = plans_.making().wait_for_made();
  const std::lock_guard lock(mutex_);
  for (const auto& plan : taken) plans_.making().take_plan(*plan);
  begin_.thread = std::this_thread::get_id();
  follow_budget();
  Counters before = executor_->counters();
  drops_.count(before);
  if (!signs_.has_begun()) signs_.first_step_begins(executor_->program().now());
  if (rest_.rests()) {
    if (rest_.goes_on(before)) return pass_step();
    executor_->end_rest();
  }
  profiling_.remember_usual_times(ops_.times());
  logger_.begin_step();
  drops_.forget();
  plans_.begin_step();
  ops_.begin_step();
  const Nanoseconds now = executor_->program().now();
  ops_.times().begin_step(now);
  begin_.counters = executor_->counters();
  drops_.count(begin_.counters);
  executor_->stalled_since_last_asked();
  executor_->begin_step(logger_.step());
  if (options_.observer != nullptr) options_.observer->step_began(logger_.step(), now);
  profiling_.begin_step(ops_.times());
}

void Steps::hear_ops() noexcept {
  if (rest_.rests()) executor_->end_rest();
  rest_.end();
}

// One that is not heard: what the engine knows of next uses would be wrong in it.
void Steps::pass_step() {
  if (plans_.current() != nullptr) executor_->forget_plan();
  plans_.leave();
  logger_.pass_step();
  signs_.step_ended("planned", executor_->program().now());
  executor_->begin_step(logger_.step());
}

// The step's log ends before its program does: later ops run as those between steps do, and nothing is learned.
void Steps::cut_step() {
  drops_.make_all();
  const std::lock_guard lock(mutex_);
  logger_.end_step();
  executor_->end_step();
  drops_.forget();
  report_end(executor_->program().now());
  profiling_.end_step(ops_.times());
  if (plans_.current() != nullptr) executor_->forget_plan();
  plans_.leave();
  messages_.post("a step has had " + std::to_string(most_ops_of_a_step) +
                 " ops, more than are planned for: the rest of it runs on demand; begin a step for each update of the "
                 "parameters");
}

std::string_view Steps::phase() const noexcept {
  const std::lock_guard lock(mutex_);
  return phase_now();
}

std::string_view Steps::phase_now() const noexcept {
  if (logger_.step() <= options_.warmup_steps) return "warm-up";
  if (rest_.rests()) return "planned";
  const Bucket* const bucket = plans_.current();
  if (plans_.follows_plan())
    return bucket->sections.stage() != SectionLearner::Stage::observing ? "planned" : "profiling";
  return plans_.is_foreseen() ? "foreseen" : "profiling";
}

// An op that is not heard may wait in a system call for what is away, where the memory allows that. Ops of a GPU have
// no sections.
bool Steps::is_settled() const noexcept {
  const Bucket* const bucket = plans_.current();
  const bool learned = bucket == nullptr || executor_->traits().whole_tensors ||
                       bucket->sections.stage() == SectionLearner::Stage::learned;
  return options_.observer == nullptr && !plans_.makes_any() && learned && executor_->may_rest();
}

void Steps::report_end(Nanoseconds now) {
  if (options_.observer == nullptr) return;
  Counters of_step = executor_->counters();
  drops_.count(of_step);
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
  of_step.disk_bytes_out = written_to_disk(of_step, plans_.machine());
  of_step.gpu = executor_->gpu_bytes();
  options_.observer->step_ran(logger_.step(), phase_now(),
                              plans_.runs_whole() ? std::optional(plans_.current()->id()) : std::nullopt);
  options_.observer->step_ended(logger_.step(), now, of_step);
}

void Steps::end_step() noexcept {
  drops_.make_all();
  const std::lock_guard lock(mutex_);
  executor_->end_step();
  if (!logger_.running()) return;
  logger_.end_step();
  drops_.forget();
  const Nanoseconds now = executor_->program().now();
  Counters then = executor_->counters();
  drops_.count(then);
  const auto since = [&](std::uint64_t Counters::*counter) {
    return Nanoseconds{static_cast<std::int64_t>(then.*counter - begin_.counters.*counter)};
  };
  report_end(now);
  signs_.step_ended(phase_now(), now);
  profiling_.end_step(ops_.times());
  const bool rested = rest_.rests();
  rest_.step_ended(then, logger_.step() > options_.warmup_steps && is_settled());
  if (!rested && rest_.rests()) executor_->begin_rest();
  if (logger_.step() <= options_.warmup_steps || logger_.log().ops.empty()) return plans_.leave();
  ops_.settle_parts();
  const std::vector<InPlaceUse> in_place = executor_->take_uses_in_place();
  plans_.end_step({.measured = {.time = ops_.times().step_time(now),
                                .stall = since(&Counters::stall_ns),
                                .recomputing = since(&Counters::recompute_ns),
                                .times = ops_.times().times(),
                                .stalls = ops_.times().stalls(),
                                .in_place = in_place},
                   .seen = ops_.observed(),
                   .rows = ops_.rows(),
                   .recomputer = drops_.recomputer(),
                   .so_far = then});
}

// A step begins.
void Steps::follow_budget() {
  if (size_asked_.exchange(false)) hear_ops();
  const Bytes budget = executor_->budget();
  if (!plans_.making().is_another_size(budget)) return plans_.making().plan_for_size();
  hear_ops();
  plans_.making().follow_size(budget);
}

// --- ops -------------------------------------------------------------------------------------------------------------

void Steps::begin_op(std::string_view name, std::span<const void* const> reads, std::span<const void* const> writes,
                     std::span<const vedette::Part> parts, Bytes result) {
  if (!ops_.enter()) return;
  if (logger_.running() && logger_.next_op() == most_ops_of_a_step) cut_step();
  ops_.begin(name, reads, writes, parts, result);
}

bool Steps::wants_uses_beside() const noexcept {
  return executor_->traits().whole_tensors && logger_.running() && plans_.current() == nullptr;
}

void Steps::uses_beside(const Session::UseBeside& use) {
  const std::lock_guard lock(mutex_);
  if (ops_.runs() && wants_uses_beside()) logger_.uses_beside(use);
}

// --- tensors come and go in a step -----------------------------------------------------------------------------------

bool Steps::wants_shapes() const noexcept {
  return options_.observer != nullptr && logger_.running() && plans_.current() == nullptr;
}

bool Steps::born(const Arena::Place& place, const Live& live) {
  const std::uint32_t index = logger_.born(place.offset, live, ops_.runs());
  if (plans_.current() == nullptr) logger_.tell_birth(index);
  if (Lineage* const lineage = drops_.lineage(); lineage != nullptr)
    lineage->born(index, ops_.runs_on_this_thread() ? std::optional(logger_.next_op() - 1) : std::nullopt);
  PageProfile* const pages = profiling_.pages();
  if (pages != nullptr) pages->born(place.offset, place.bytes, index);
  return pages != nullptr;
}

void Steps::unborn(const Arena::Place& place) {
  if (logger_.running()) logger_.unborn(place.offset);
  if (PageProfile* const pages = profiling_.pages(); pages != nullptr) pages->died(place.offset);
  ops_.died(place.chunks);
}

void Steps::wake() {
  if (!rest_.rests()) return;
  executor_->end_rest();
  rest_.wake();
}

Executor::Caller Steps::caller() const {
  const std::thread::id here = std::this_thread::get_id(), ops = ops_.thread();
  const bool runs = ops_.runs();
  if (runs && ops == here) return Executor::Caller::in_its_op;
  const bool first = ops == std::thread::id() && begin_.thread == std::thread::id();
  return !runs && (first || ops == here || begin_.thread == here) ? Executor::Caller::between_ops
                                                                  : Executor::Caller::another_thread;
}

}  // namespace vedette::detail
