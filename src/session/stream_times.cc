// Events around ops: see stream_times.h.
#include "session/stream_times.h"

#include <algorithm>
#include <utility>

namespace vedette::detail {

void StreamTimes::begin_step(std::uint64_t step) {
  timing_ = steps_.size() < most_open;
  if (timing_) steps_.push_back({.number = step, .ops = {}});
}

std::optional<std::size_t> StreamTimes::record(cuda::StreamHandle stream) {
  if (unused_.empty()) {
    auto fresh = cuda::Event::create(device_, cuda::Event::Timing::on);
    if (!fresh) return std::nullopt;
    unused_.push_back(events_.size());
    events_.push_back(std::move(*fresh));
  }
  const std::size_t event = unused_.back();
  if (!events_[event].record(stream)) return std::nullopt;
  unused_.pop_back();
  return event;
}

void StreamTimes::begin_op(cuda::StreamHandle stream, bool waits) {
  if (!timing_) return;
  const auto event = record(stream);
  if (!event) steps_.back().failed = true;
  if (event) steps_.back().ops.push_back({.begin = *event, .waits = waits});
}

void StreamTimes::end_op(cuda::StreamHandle stream) {
  if (!timing_ || steps_.back().ops.empty()) return;
  const auto event = record(stream);
  Op& op = steps_.back().ops.back();
  op.ended = event.has_value();
  if (event) op.end = *event;
  if (!event) steps_.back().failed = true;
}

// All of its events, the last first: ops may be on several streams.
bool StreamTimes::passed(const Step& step, bool wait) {
  for (auto op = step.ops.rbegin(); op != step.ops.rend(); ++op) {
    if (!op->ended) return false;
    if (wait && !events_[op->end].synchronize()) return false;
    const auto passed = events_[op->end].passed();
    if (!passed || !*passed) return false;
  }
  return true;
}

Executor::StepTimes StreamTimes::times_of(const Step& step) {
  Executor::StepTimes times{.step = step.number, .times = {}, .stalls = {}, .whole = {}};
  const Op* before = nullptr;
  const auto between = [&](std::size_t from, std::size_t to) {
    const auto took = events_[to].since(events_[from]);
    return Nanoseconds{took ? std::max<std::int64_t>(took->value, 0) : 0};
  };
  for (const Op& op : step.ops) {
    const Nanoseconds idle = before == nullptr ? Nanoseconds{} : between(before->end, op.begin);
    const Nanoseconds took = between(op.begin, op.end);
    times.times.push_back(op.waits ? took : took + idle);
    times.stalls.push_back(op.waits ? idle : Nanoseconds{});
    times.whole += took + idle;
    before = &op;
  }
  return times;
}

void StreamTimes::recycle(const Step& step) {
  for (const Op& op : step.ops) {
    unused_.push_back(op.begin);
    if (op.ended) unused_.push_back(op.end);
  }
}

std::optional<Executor::StepTimes> StreamTimes::take(bool wait) {
  std::optional<Executor::StepTimes> latest;
  while (!steps_.empty()) {
    const Step& oldest = steps_.front();
    if (!oldest.failed && !passed(oldest, wait)) break;
    if (!oldest.failed) latest = times_of(oldest);
    recycle(oldest);
    steps_.pop_front();
  }
  timing_ = timing_ && !steps_.empty();
  return latest;
}

}  // namespace vedette::detail
