// Events around ops: see stream_times.h.
#include "session/stream_times.h"

#include <algorithm>
#include <utility>

namespace vedette::detail {

void StreamTimes::begin_step(std::uint64_t step, const void* plan, bool always) {
  constexpr std::uint64_t settled = 16, one_in = 16;
  following_.steps = plan != nullptr && plan == following_.plan ? following_.steps + 1 : 0;
  following_.plan = plan;
  const bool timed = always || following_.steps < settled || following_.steps % one_in == 0;
  if (!timed) ++following_.untimed;
  timing_ = timed && steps_.size() < most_open;
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
  if (event)
    steps_.back().ops.push_back(
        {.begin = *event, .waits = waits, .before = std::exchange(steps_.back().before_next, {})});
}

void StreamTimes::end_op(cuda::StreamHandle stream) {
  if (!timing_ || steps_.back().ops.empty()) return;
  const auto event = record(stream);
  Op& op = steps_.back().ops.back();
  op.ended = event.has_value();
  if (event) op.end = *event;
  if (!event) steps_.back().failed = true;
}

std::vector<StreamTimes::Aside>& StreamTimes::asides() {
  Step& step = steps_.back();
  return step.ops.empty() || step.ops.back().ended ? step.before_next : step.ops.back().inside;
}

void StreamTimes::begin_aside(cuda::StreamHandle stream, bool counts) {
  if (!timing_) return;
  const auto event = record(stream);
  if (!event) steps_.back().failed = true;
  if (event) asides().push_back({.begin = *event, .counts = counts});
}

void StreamTimes::end_aside(cuda::StreamHandle stream) {
  if (!timing_ || asides().empty() || asides().back().ended) return;
  const auto event = record(stream);
  Aside& aside = asides().back();
  aside.ended = event.has_value();
  if (event) aside.end = *event;
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
  Executor::StepTimes times{.step = step.number, .times = {}, .stalls = {}, .whole = {}, .recomputing = {}};
  const Op* before = nullptr;
  const auto between = [&](std::size_t from, std::size_t to) {
    const auto took = events_[to].since(events_[from]);
    return Nanoseconds{took ? std::max<std::int64_t>(took->value, 0) : 0};
  };
  Nanoseconds counted;
  const auto all_of = [&](const std::vector<Aside>& asides) {
    Nanoseconds all;
    for (const Aside& aside : asides) {
      const Nanoseconds one = aside.ended ? between(aside.begin, aside.end) : Nanoseconds{};
      all += one;
      if (aside.counts) counted += one;
    }
    return all;
  };
  const auto without = [](Nanoseconds whole, Nanoseconds part) {
    return Nanoseconds{std::max<std::int64_t>((whole - part).value, 0)};
  };
  for (const Op& op : step.ops) {
    const Nanoseconds aside = all_of(op.before), inside = all_of(op.inside);
    const Nanoseconds idle = before == nullptr ? Nanoseconds{} : without(between(before->end, op.begin), aside);
    const Nanoseconds took = without(between(op.begin, op.end), inside);
    times.times.push_back(op.waits ? took : took + idle);
    times.stalls.push_back(op.waits ? idle : Nanoseconds{});
    times.whole += took + idle;
    before = &op;
  }
  times.recomputing = counted;
  times.whole += counted;
  return times;
}

void StreamTimes::recycle(const Step& step) {
  const auto give_back = [&](const auto& each) {
    unused_.push_back(each.begin);
    if (each.ended) unused_.push_back(each.end);
  };
  for (const Op& op : step.ops) {
    give_back(op);
    for (const auto* asides : {&op.before, &op.inside}) std::for_each(asides->begin(), asides->end(), give_back);
  }
  std::for_each(step.before_next.begin(), step.before_next.end(), give_back);
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
