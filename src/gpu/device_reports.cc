// Announcements that wait for their times: see device_reports.h.
#include "gpu/device_reports.h"

#include <algorithm>
#include <utility>

#include "cuda/nvml.h"
#include "os/program.h"

namespace vedette::detail {
namespace {

Nanoseconds host_now() { return host_program().now(); }

}  // namespace

DeviceReports::DeviceReports(std::shared_ptr<const cuda::Device> device, Observer* observer)
    : device_(std::move(device)),
      marks_(std::make_shared<Marks>(device_)),
      observer_(observer),
      gpu_observer_(dynamic_cast<GpuObserver*>(observer)),
      birth_observer_(dynamic_cast<BirthObserver*>(observer)) {
  const auto stream = cuda::Stream::create(device_);
  if (!stream) return;
  const Mark first = mark(stream->handle());
  if (first.event == none || !stream->synchronize()) return;
  zero_ = first.event;
  zero_time_ = host_now();
}

DeviceReports::Mark DeviceReports::mark(cuda::StreamHandle stream, Shared shared) {
  Mark made{.queued = host_now()};
  marks_->hold(shared);
  made.event = shared != none ? shared : marks_->record(stream);
  return made;
}

std::uint32_t DeviceReports::number_of(cuda::StreamHandle stream) {
  const auto found = std::find(streams_.begin(), streams_.end(), stream);
  const auto number = static_cast<std::uint32_t>(found - streams_.begin());
  if (found == streams_.end()) streams_.push_back(stream);
  return number;
}

void DeviceReports::give_back(Mark& mark) {
  marks_->release(mark.event);
  mark = {};
}

// --- what the executor says ------------------------------------------------------------------------------------------

void DeviceReports::op_queues(cuda::StreamHandle stream, bool waits, Shared shared) {
  const std::lock_guard lock(mutex_);
  if (!running_) return;
  give_back(op_begin_);  // of an op between two steps
  op_begin_ = mark(stream, shared);
  op_waits_ = waits;
  op_stream_ = number_of(stream);
}

void DeviceReports::op_is_queued(cuda::StreamHandle stream, Shared shared) {
  const std::lock_guard lock(mutex_);
  if (!running_) return;
  give_back(op_end_);
  op_end_ = mark(stream, shared);
}

void DeviceReports::move_queues(cuda::StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  if (!running_) return;
  give_back(move_begin_);  // of a copy that was refused
  move_begin_ = mark(stream);
}

void DeviceReports::move_is_queued(const MoveRecord& move, cuda::StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  if (!running_) return;
  marks_->hold(move_begin_.event);  // others of the same call begin there, too
  running_->moves.push_back({.record = move, .begin = move_begin_, .end = mark(stream)});
}

void DeviceReports::wait_queues(cuda::StreamHandle stream, bool for_room, Shared shared) {
  const std::lock_guard lock(mutex_);
  if (running_) running_->waits.push_back({.for_room = for_room, .begin = mark(stream, shared)});
}

void DeviceReports::wait_is_queued(cuda::StreamHandle stream, Shared shared) {
  const std::lock_guard lock(mutex_);
  if (running_ && !running_->waits.empty()) running_->waits.back().end = mark(stream, shared);
}

void DeviceReports::again_queues(cuda::StreamHandle stream, Shared shared) {
  const std::lock_guard lock(mutex_);
  if (running_) running_->again.push_back({.before = running_->ops.size(), .begin = mark(stream, shared)});
}

void DeviceReports::again_is_queued(cuda::StreamHandle stream, Shared shared) {
  const std::lock_guard lock(mutex_);
  if (running_ && !running_->again.empty()) running_->again.back().end = mark(stream, shared);
}

void DeviceReports::has_tables(const GpuTableCounters& tables) {
  const std::lock_guard lock(mutex_);
  if (gpu_observer_ != nullptr) gpu_observer_->has_tables(tables);
}

void DeviceReports::finish() {
  const cuda::Current current(*device_);
  const std::lock_guard lock(mutex_);
  tell_what_is_known(true);
  if (observer_ != nullptr && running_ && has_passed(*running_, true)) {
    set_clock(*running_);
    tell_moves(*running_);  // of events after the last step
  }
  observer_ = nullptr;
  gpu_observer_ = nullptr;
  const auto release = [&](const Mark& mark) { marks_->release(mark.event); };
  for (Mark* const mark : {&op_begin_, &op_end_, &move_begin_}) give_back(*mark);
  if (running_) each_mark(*running_, release);
  for (const Step& step : ended_) each_mark(step, release);
  running_.reset();
  ended_.clear();
  marks_->release(std::exchange(zero_, none));
}

// --- what the session says -------------------------------------------------------------------------------------------

void DeviceReports::resized(Nanoseconds now, Bytes budget) {
  if (observer_ != nullptr) observer_->resized(now, budget);
}

void DeviceReports::opened(const Machine& machine, std::string_view policy, Bytes budget, Bytes chunk) {
  if (observer_ != nullptr) observer_->opened(machine, policy, budget, chunk);
  if (gpu_observer_ != nullptr) gpu_observer_->counts_energy(cuda::energy_counter(device_->bus_id()));
}

bool DeviceReports::wants_births() const noexcept {
  return birth_observer_ != nullptr && birth_observer_->wants_births();
}

void DeviceReports::born(std::uint64_t step, std::uint32_t birth) noexcept { birth_observer_->born(step, birth); }

void DeviceReports::births_profiled(std::uint64_t step, std::span<const std::uint32_t> births) {
  birth_observer_->births_profiled(step, births);
}

void DeviceReports::moves_by(std::string_view mechanism) {
  if (observer_ != nullptr) observer_->moves_by(mechanism);
}

void DeviceReports::profiled(std::uint64_t step, std::uint64_t bucket, const Trace& trace) {
  if (observer_ != nullptr) observer_->profiled(step, bucket, trace);
}

void DeviceReports::planned(std::uint64_t step, std::uint64_t bucket, const Trace& units, const Plan& plan) {
  if (observer_ != nullptr) observer_->planned(step, bucket, units, plan);
}

void DeviceReports::placed(std::uint64_t step, std::uint64_t bucket, std::span<const Placed> units,
                           std::span<const Placed> tensors) {
  if (observer_ != nullptr) observer_->placed(step, bucket, units, tensors);
}

void DeviceReports::recomputed(const RecomputeRecord& record) {
  const std::lock_guard lock(mutex_);
  if (running_ && !running_->again.empty()) running_->again.back().records.push_back(record);
}

void DeviceReports::step_began(std::uint64_t step, Nanoseconds now) {
  const std::lock_guard lock(mutex_);
  // Copies between two steps, and before the first, are the next one's.
  std::vector<Move> before;
  if (running_) before = std::move(running_->moves);
  if (running_)
    for (Wait& wait : running_->waits) give_back(wait.begin), give_back(wait.end);
  if (running_)
    for (Again& again : running_->again) give_back(again.begin), give_back(again.end);
  running_ = Step{.number = step, .began = now, .moves = std::move(before)};
}

void DeviceReports::op_began(std::uint64_t, OpIndex op, std::string_view name, Nanoseconds) {
  const std::lock_guard lock(mutex_);
  running_->ops.push_back({.op = op,
                           .name = std::string(name),
                           .begin = std::exchange(op_begin_, {}),
                           .waits = op_waits_,
                           .stream = op_stream_});
}

void DeviceReports::sampled(std::uint64_t, OpIndex, Bytes resident, Bytes live) {
  const std::lock_guard lock(mutex_);
  running_->ops.back().resident = resident;
  running_->ops.back().live = live;
}

void DeviceReports::op_ended(std::uint64_t, OpIndex, Nanoseconds) {
  const std::lock_guard lock(mutex_);
  running_->ops.back().end = std::exchange(op_end_, {});
}

void DeviceReports::step_ran(std::uint64_t, std::string_view phase, std::optional<std::uint64_t> bucket) {
  const std::lock_guard lock(mutex_);
  running_->phase = phase;
  running_->bucket = bucket;
}

void DeviceReports::step_ended(std::uint64_t step, Nanoseconds now, const Counters& of_this_step) {
  const std::lock_guard lock(mutex_);
  running_->ended = now;
  running_->counters = of_this_step;
  ended_.push_back(std::exchange(running_, Step{.number = step}).value());
  tell_what_is_known(false);
}

// --- what is known ---------------------------------------------------------------------------------------------------

template <typename Visit>
void DeviceReports::each_mark(const Step& step, Visit visit) {
  for (const Op& op : step.ops) visit(op.begin), visit(op.end);
  for (const Move& move : step.moves) visit(move.begin), visit(move.end);
  for (const Wait& wait : step.waits) visit(wait.begin), visit(wait.end);
  for (const Again& again : step.again) visit(again.begin), visit(again.end);
}

// From the latest mark backwards, which are most likely the ones that have not passed.
bool DeviceReports::has_passed(const Step& step, bool wait) {
  bool all = true;
  each_mark(step, [&](const Mark& mark) {
    if (!all || mark.event == none) return;
    if (wait) static_cast<void>(marks_->synchronize(mark.event));
    const auto passed = marks_->passed(mark.event);
    all = wait || !passed || *passed;  // of a device that is lost nothing more will be known
  });
  return all;
}

void DeviceReports::tell_what_is_known(bool wait) {
  while (observer_ != nullptr && !ended_.empty() && has_passed(ended_.front(), wait)) {
    const Step step = std::move(ended_.front());
    ended_.pop_front();
    const Mark latest = set_clock(step);
    tell(step);
    if (latest.event != none) {
      zero_time_ = time_of(latest);
      marks_->release(std::exchange(zero_, latest.event));
      marks_->hold(zero_);
    }
    each_mark(step, [&](const Mark& mark) { marks_->release(mark.event); });
  }
}

// The latest event of a step becomes the zero. The clocks of host and device drift apart: nothing happened before it
// was queued, or later than now.
DeviceReports::Mark DeviceReports::set_clock(const Step& step) {
  Mark latest;
  if (zero_ == none) return latest;
  Nanoseconds latest_time, shift;
  each_mark(step, [&](const Mark& mark) {
    if (mark.event == none) return;
    const auto since = marks_->since(mark.event, zero_);
    if (!since) return;
    const Nanoseconds time = zero_time_ + *since;
    shift = std::max(shift, mark.queued - time);
    if (latest.event == none || time > latest_time) latest = mark, latest_time = time;
  });
  zero_time_ += shift;
  const Nanoseconds too_late = latest_time + shift - host_now();
  if (latest.event != none && too_late.value > 0) zero_time_ = zero_time_ - too_late;
  return latest;
}

Nanoseconds DeviceReports::time_of(const Mark& mark) const {
  if (mark.event == none || zero_ == none) return mark.queued;
  const auto since = marks_->since(mark.event, zero_);
  return since ? std::max(zero_time_ + *since, mark.queued) : mark.queued;
}

void DeviceReports::tell(const Step& step) {
  Counters counters = step.counters;
  const Nanoseconds began = std::max(step.began, told_until_);
  observer_->step_began(step.number, began);
  const Nanoseconds last = tell_ops(step, began, counters);
  tell_moves(step);
  const Nanoseconds last_again = tell_again(step, began, counters);
  told_until_ = std::max({began, step.ended, last, last_again});
  observer_->step_ran(step.number, step.phase, step.bucket);
  observer_->step_ended(step.number, told_until_, counters);
}

// Tells the waits of a step on the way from op to op; none overlaps another one, or time that was told before.
class DeviceReports::Stalls {
 public:
  Stalls(DeviceReports& reports, const Step& step, Counters& counters)
      : reports_(reports), step_(step), counters_(counters), next_(step.waits.begin()) {
    counters_.stall_count = counters_.stall_ns = 0;
  }
  void tell(const Op& op, bool for_room, Nanoseconds began, Nanoseconds ended) {
    if (ended <= began) return;
    reports_.observer_->stalled(
        {.step = step_.number, .op = op.op, .in_allocation = for_room, .began = began, .ended = ended});
    ++counters_.stall_count;
    counters_.stall_ns += static_cast<std::uint64_t>((ended - began).value);
  }
  // Those that end by `until`: they are the op's. Returns until when all is told, which was `from` before.
  Nanoseconds tell_until(const Op& op, Nanoseconds from, Nanoseconds until) {
    for (; next_ != step_.waits.end(); ++next_) {
      const Nanoseconds ended = reports_.time_of(next_->end);
      if (ended > until) break;
      tell(op, next_->for_room, std::max(from, reports_.time_of(next_->begin)), ended);
      from = std::max(from, ended);
    }
    return from;
  }

 private:
  DeviceReports& reports_;
  const Step& step_;
  Counters& counters_;
  std::vector<Wait>::const_iterator next_;
};

// Returns when the last op ended. None begins before the step, whatever the clocks say.
Nanoseconds DeviceReports::tell_ops(const Step& step, Nanoseconds step_began, Counters& counters) {
  Nanoseconds before = step_began;  // until when all is told
  auto again = step.again.begin();
  Stalls stalls(*this, step, counters);
  for (const Op& op : step.ops) {
    before = stalls.tell_until(op, before, time_of(op.begin));
    for (; again != step.again.end() && again->before <= static_cast<std::size_t>(&op - step.ops.data()); ++again)
      before = std::max(before, std::min(time_of(again->end), time_of(op.begin)));
    const Nanoseconds began = std::max(time_of(op.begin), before), ended = std::max(time_of(op.end), began);
    if (op.waits) stalls.tell(op, false, before, began);
    observer_->op_began(step.number, op.op, op.name, began);
    if (gpu_observer_ != nullptr) gpu_observer_->op_ran_on(step.number, op.op, op.stream);
    stalls.tell_until(op, began, ended);
    observer_->sampled(step.number, op.op, op.resident, op.live);
    observer_->op_ended(step.number, op.op, ended);
    before = ended;
  }
  return before;
}

// The time of one go is its first record's. As ops, none begins before the step.
Nanoseconds DeviceReports::tell_again(const Step& step, Nanoseconds step_began, Counters& counters) {
  counters.recompute_ns = 0;
  Nanoseconds last = step_began;
  for (const Again& again : step.again) {
    const Nanoseconds began = std::max(time_of(again.begin), step_began), ended = std::max(time_of(again.end), began);
    last = std::max(last, ended);
    if (!again.records.empty()) counters.recompute_ns += static_cast<std::uint64_t>((ended - began).value);
    for (std::size_t i = 0; i < again.records.size(); ++i) {
      RecomputeRecord record = again.records[i];
      record.began = i == 0 ? began : ended;
      record.ended = ended;
      observer_->recomputed(record);
    }
  }
  return last;
}

void DeviceReports::tell_moves(const Step& step) {
  for (const Move& move : step.moves) {
    MoveRecord record = move.record;
    record.issued = move.begin.queued;
    record.started = time_of(move.begin);
    record.ended = std::max(time_of(move.end), record.started);
    observer_->moved(record);
  }
}

}  // namespace vedette::detail
