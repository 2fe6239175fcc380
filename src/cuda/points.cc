// Rings of events: see points.h.
#include "cuda/points.h"

#include <algorithm>
#include <utility>

namespace vedette::cuda {

std::uint32_t Points::number_of(StreamHandle handle) {
  const auto found =
      std::find_if(streams_.begin(), streams_.end(), [&](const Line& each) { return each.handle == handle; });
  const auto number = static_cast<std::uint32_t>(found - streams_.begin());
  if (found == streams_.end()) streams_.push_back({.handle = handle});
  return number;
}

Result<const Points::Recorded*> Points::record(Line& line) {
  if (line.next == line.ring.size()) {
    auto event = Event::create(device_);
    if (!event) return event.error();
    line.ring.push_back({.event = std::move(*event)});
  }
  Recorded& oldest = line.ring[line.next];
  if (auto recorded = oldest.event.record(line.handle); !recorded) return recorded.error();
  oldest.number = line.points;
  line.next = (line.next + 1) % events_;
  return &oldest;
}

Result<StreamPoint> Points::mark(std::uint32_t stream) {
  Line& line = streams_[stream];
  ++line.points;
  if (auto recorded = record(line); !recorded) return --line.points, recorded.error();
  return StreamPoint{.stream = stream, .number = line.points};
}

// Numbers rise from the ring's next event to its last one, and on from its first.
Result<const Points::Recorded*> Points::event_of(StreamPoint point) {
  Line& line = streams_[point.stream];
  const auto middle = line.ring.begin() + static_cast<std::ptrdiff_t>(std::min(line.next, line.ring.size()));
  const auto before = [](const Recorded& each, std::uint64_t number) { return each.number < number; };
  for (const auto& [begin, end] : {std::pair(middle, line.ring.end()), std::pair(line.ring.begin(), middle)}) {
    const auto found = std::lower_bound(begin, end, point.number, before);
    if (found != end) return &*found;
  }
  return record(line);
}

bool Points::has_to_wait(std::uint32_t stream, StreamPoint point) const {
  if (point.number == 0 || point.stream == stream || point.number <= streams_[point.stream].passed) return false;
  const std::vector<std::uint64_t>& behind = streams_[stream].behind;
  return behind.size() <= point.stream || behind[point.stream] < point.number;
}

Result<void> Points::let_wait(std::uint32_t stream, StreamPoint point) {
  if (!has_to_wait(stream, point)) return {};
  const auto recorded = event_of(point);
  if (!recorded || !(*recorded)->event.let_wait(streams_[stream].handle)) return wait(point);
  std::vector<std::uint64_t>& behind = streams_[stream].behind;
  if (behind.size() <= point.stream) behind.resize(point.stream + 1);
  behind[point.stream] = (*recorded)->number;
  return {};
}

Result<bool> Points::passed(StreamPoint point) {
  Line& line = streams_[point.stream];
  if (point.number <= line.passed) return true;
  const auto recorded = event_of(point);
  if (!recorded) return recorded.error();
  auto passed = (*recorded)->event.passed();
  if (passed && *passed) line.passed = (*recorded)->number;
  return passed;
}

Result<void> Points::wait(StreamPoint point) {
  Line& line = streams_[point.stream];
  if (point.number <= line.passed) return {};
  const auto recorded = event_of(point);
  if (!recorded) {  // all that is queued there passes, then
    const std::uint64_t noted = line.points;
    auto passed = device_->driver().check(device_->calls().stream_synchronize(line.handle), "waiting for a stream");
    if (passed) line.passed = noted;
    return passed;
  }
  if (auto waited = (*recorded)->event.synchronize(); !waited) return waited;
  line.passed = (*recorded)->number;
  return {};
}

}  // namespace vedette::cuda
