// Events around ops: see stream_times.h.
#include "gpu/stream_times.h"

#include <algorithm>
#include <utility>

namespace vedette::detail {

StreamTimes::StreamTimes(std::shared_ptr<const cuda::Device> device, std::shared_ptr<DeviceReports> reports)
    : reports_(std::move(reports)),
      marks_(reports_ != nullptr ? reports_->marks() : std::make_shared<Marks>(std::move(device))) {}

void StreamTimes::begin_step(std::uint64_t step, cuda::StreamHandle stream, const void* plan) {
  constexpr std::uint64_t settled = 8, one_in = 16;
  following_.steps = plan != nullptr && plan == following_.plan ? following_.steps + 1 : 0;
  following_.plan = plan;
  const bool timed = reports_ != nullptr || following_.steps < settled || following_.steps % one_in == 0;
  timing_ = timed && steps_.size() < most_open;
  if (!timing_) ++untimed_;
  if (!timing_) return;
  if (spare_.empty()) spare_.emplace_back();
  steps_.push_back(std::move(spare_.back()));
  spare_.pop_back();
  steps_.back().number = step;
  steps_.back().untimed_before = std::exchange(untimed_, 0);
  steps_.back().begin = marks_->record(stream);
}

StreamTimes::Mark StreamTimes::record(cuda::StreamHandle stream) {
  if (!timing_) return Marks::none;
  const Mark mark = marks_->record(stream);
  steps_.back().failed = steps_.back().failed || mark == Marks::none;
  return mark;
}

void StreamTimes::begin_op(cuda::StreamHandle stream, bool waits) {
  const Mark mark = record(stream);
  if (mark != Marks::none) steps_.back().ops.push_back({.begin = mark, .waits = waits});
  if (reports_ != nullptr) reports_->op_queues(stream, waits, mark);
}

void StreamTimes::end_op(cuda::StreamHandle stream) {
  const bool began = timing_ && !steps_.back().ops.empty();
  const Mark mark = began ? record(stream) : Marks::none;
  if (began) steps_.back().ops.back().end = mark;
  if (reports_ != nullptr) reports_->op_is_queued(stream, mark);
}

void StreamTimes::begin_aside(cuda::StreamHandle stream, Scratch::Aside what) {
  aside_ = what;
  const bool again = what == Scratch::Aside::recomputation;
  const Mark mark = mark_begin(stream, again ? Kind::recomputation : Kind::trial);
  if (reports_ != nullptr && again) reports_->again_queues(stream, mark);
}

void StreamTimes::end_aside(cuda::StreamHandle stream) {
  const Mark mark = mark_end(stream);
  const bool again = std::exchange(aside_, std::nullopt) == Scratch::Aside::recomputation;
  if (reports_ != nullptr && again) reports_->again_is_queued(stream, mark);
}

void StreamTimes::begin_wait(cuda::StreamHandle stream, bool for_room) {
  if (aside_) return;
  const Mark mark = mark_begin(stream, for_room ? Kind::waits_for_room : Kind::waits_for_bytes);
  if (reports_ != nullptr) reports_->wait_queues(stream, for_room, mark);
}

void StreamTimes::end_wait(cuda::StreamHandle stream) {
  if (aside_) return;
  const Mark mark = mark_end(stream);
  if (reports_ != nullptr) reports_->wait_is_queued(stream, mark);
}

StreamTimes::Mark StreamTimes::mark_begin(cuda::StreamHandle stream, Kind kind) {
  const Mark mark = record(stream);
  if (mark == Marks::none) return mark;
  Step& step = steps_.back();
  const bool inside = !step.ops.empty() && !step.ops.back().ended();
  step.asides.push_back({.begin = mark, .op = step.ops.size() - (inside ? 1 : 0), .inside = inside, .kind = kind});
  return mark;
}

StreamTimes::Mark StreamTimes::mark_end(cuda::StreamHandle stream) {
  if (!timing_ || steps_.back().asides.empty() || steps_.back().asides.back().ended()) return Marks::none;
  return steps_.back().asides.back().end = record(stream);
}

// All of its events, the last first: ops may be on several streams.
bool StreamTimes::passed(const Step& step, bool wait) {
  for (auto op = step.ops.rbegin(); op != step.ops.rend(); ++op) {
    if (!op->ended()) return false;
    if (wait && !marks_->synchronize(op->end)) return false;
    const auto passed = marks_->passed(op->end);
    if (!passed || !*passed) return false;
  }
  return true;
}

Nanoseconds StreamTimes::between(Mark begin, Mark end) const {
  const auto took = marks_->since(end, begin);
  return {took ? std::max<std::int64_t>(took->value, 0) : 0};
}

Executor::StepTimes StreamTimes::times_of(const Step& step) {
  Executor::StepTimes times{.step = step.number};
  for (auto* const each : {&times.times, &times.stalls, &times.for_room}) each->reserve(step.ops.size());
  const auto without = [](Nanoseconds whole, Nanoseconds part) {
    return Nanoseconds{std::max<std::int64_t>((whole - part).value, 0)};
  };
  const auto of = [](const Sums& sums, Kind kind) { return sums.of[static_cast<std::size_t>(kind)]; };
  const Op* before = nullptr;
  auto aside = step.asides.begin();
  for (const Op& op : step.ops) {
    Sums earlier, inside;
    for (; aside != step.asides.end() && aside->op == static_cast<std::size_t>(&op - step.ops.data()); ++aside)
      if (aside->ended())
        (aside->inside ? inside : earlier).of[static_cast<std::size_t>(aside->kind)] +=
            between(aside->begin, aside->end);
    Nanoseconds idle;
    if (before != nullptr) idle = without(between(before->end, op.begin), earlier.all());
    if (before == nullptr && op.waits && step.begin != Marks::none)
      idle = without(between(step.begin, op.begin), earlier.all());
    const Nanoseconds took = without(between(op.begin, op.end), inside.all());
    const Nanoseconds for_room = of(earlier, Kind::waits_for_room) + of(inside, Kind::waits_for_room);
    const Nanoseconds for_bytes =
        of(earlier, Kind::waits_for_bytes) + of(inside, Kind::waits_for_bytes) + (op.waits ? idle : Nanoseconds{});
    times.times.push_back(op.waits ? took : took + idle);
    times.stalls.push_back(for_bytes + for_room);
    times.for_room.push_back(for_room);
    times.recomputing += of(earlier, Kind::recomputation) + of(inside, Kind::recomputation);
    times.whole += times.times.back() + times.stalls.back();
    before = &op;
  }
  times.whole += times.recomputing;
  return times;
}

void StreamTimes::count(const Step& step, const Executor::StepTimes& times) {
  const std::uint64_t steps = 1 + step.untimed_before;
  for (const Nanoseconds stall : times.stalls) {
    if (stall.value == 0) continue;
    totals_.stall_count += steps;
    totals_.stall_ns += steps * static_cast<std::uint64_t>(stall.value);
  }
  totals_.recompute_ns += steps * static_cast<std::uint64_t>(times.recomputing.value);
}

void StreamTimes::recycle(Step step) {
  const auto give_back = [&](const auto& each) {
    marks_->release(each.begin);
    marks_->release(each.end);
  };
  std::for_each(step.ops.begin(), step.ops.end(), give_back);
  std::for_each(step.asides.begin(), step.asides.end(), give_back);
  marks_->release(std::exchange(step.begin, Marks::none));
  step.ops.clear();
  step.asides.clear();
  step.failed = false;
  spare_.push_back(std::move(step));
}

std::optional<Executor::StepTimes> StreamTimes::take(bool wait) {
  std::optional<Executor::StepTimes> latest;
  while (!steps_.empty()) {
    const Step& oldest = steps_.front();
    if (!oldest.failed && !passed(oldest, wait)) break;
    if (oldest.failed) untimed_ += 1 + oldest.untimed_before;
    if (!oldest.failed) latest = times_of(oldest);
    if (!oldest.failed) count(oldest, *latest);
    recycle(std::move(steps_.front()));
    steps_.erase(steps_.begin());
  }
  timing_ = timing_ && !steps_.empty();
  return latest;
}

}  // namespace vedette::detail
