// Rings of events: see points.h.
#include "cuda/points.h"

#include <algorithm>

namespace vedette::cuda {

std::uint32_t Points::number_of(StreamHandle handle) {
  const auto found =
      std::find_if(streams_.begin(), streams_.end(), [&](const Line& each) { return each.handle == handle; });
  const auto number = static_cast<std::uint32_t>(found - streams_.begin());
  if (found == streams_.end()) streams_.push_back({.handle = handle});
  return number;
}

Result<StreamPoint> Points::mark(std::uint32_t stream) {
  Line& line = streams_[stream];
  if (line.ring.size() < events_ && line.ring.size() == line.marked) {
    auto event = Event::create(device_);
    if (!event) return event.error();
    line.ring.push_back(std::move(*event));
  }
  const std::uint64_t next = line.marked + 1;
  if (auto recorded = line.ring[(next - 1) % events_].record(line.handle); !recorded) return recorded.error();
  line.marked = next;
  return StreamPoint{.stream = stream, .number = next};
}

const Event& Points::event_of(StreamPoint point) { return streams_[point.stream].ring[(point.number - 1) % events_]; }

bool Points::has_to_wait(std::uint32_t stream, StreamPoint point) const {
  if (point.number == 0 || point.stream == stream || point.number <= streams_[point.stream].passed) return false;
  const std::vector<std::uint64_t>& behind = streams_[stream].behind;
  return behind.size() <= point.stream || behind[point.stream] < point.number;
}

Result<void> Points::let_wait(std::uint32_t stream, StreamPoint point) {
  if (!has_to_wait(stream, point)) return {};
  Line& line = streams_[stream];
  if (line.behind.size() <= point.stream) line.behind.resize(point.stream + 1);
  if (!event_of(point).let_wait(line.handle)) {
    if (auto waited = wait(point); !waited) return waited;
  }
  line.behind[point.stream] = point.number;
  return {};
}

Result<bool> Points::passed(StreamPoint point) {
  Line& line = streams_[point.stream];
  if (point.number <= line.passed) return true;
  auto passed = event_of(point).passed();
  if (passed && *passed) line.passed = point.number;
  return passed;
}

Result<void> Points::wait(StreamPoint point) {
  Line& line = streams_[point.stream];
  if (point.number <= line.passed) return {};
  if (auto waited = event_of(point).synchronize(); !waited) return waited;
  line.passed = point.number;
  return {};
}

}  // namespace vedette::cuda
