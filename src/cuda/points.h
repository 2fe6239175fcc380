// Points of streams: "all that was queued here before now". Marking one records an event of a ring; a stream or a
// thread waits for it. An event that was recorded again stands for a later point of the same stream, which is as good
// to wait for: a wait never lasts for later work.
//
// A point that is only noted costs no event. Where something has to wait for it after all, an event is recorded then:
// the wait lasts for what is queued by then, too.
//
// Thread rule: one thread at a time, in which the device's context is current.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/device.h"

namespace vedette::cuda {

struct StreamPoint {
  std::uint32_t stream = 0;  // number of a stream in Points
  std::uint64_t number = 0;  // 0: before everything
  auto operator<=>(const StreamPoint&) const = default;
};

class Points {
 public:
  explicit Points(std::shared_ptr<const Device> device, std::uint32_t events_a_stream = 64)
      : device_(std::move(device)), events_(events_a_stream) {}

  std::uint32_t number_of(StreamHandle);  // a stream's number; the same handle has the same for ever
  StreamHandle handle_of(std::uint32_t stream) const { return streams_[stream].handle; }

  Result<StreamPoint> mark(std::uint32_t stream);
  // Only of a stream that lives as long as these points: its event may be recorded at any time.
  StreamPoint note(std::uint32_t stream) { return {.stream = stream, .number = ++streams_[stream].points}; }
  // The stream runs behind the point. Free where it does already: its own points, and points that it has waited for.
  // Where the driver refuses, the host waits for the point itself.
  Result<void> let_wait(std::uint32_t stream, StreamPoint);
  // Not one of the stream's own, not known to have passed, and the stream does not run behind it yet.
  bool has_to_wait(std::uint32_t stream, StreamPoint) const;
  Result<bool> passed(StreamPoint);
  Result<void> wait(StreamPoint);  // the calling thread

 private:
  struct Recorded {
    Event event;
    std::uint64_t number = 0;  // of the point at which it was recorded last; 0: never
  };
  struct Line {
    StreamHandle handle = nullptr;
    std::vector<Recorded> ring;            // events are made when they are first needed
    std::size_t next = 0;                  // of the ring, to be recorded: the oldest
    std::uint64_t points = 0, passed = 0;  // numbers of points
    std::vector<std::uint64_t> behind;     // by stream: the point that this one runs behind
  };
  Result<const Recorded*> record(Line&);  // behind all its points
  // The earliest event that stands for the point; recorded now where there is none.
  Result<const Recorded*> event_of(StreamPoint);

  const std::shared_ptr<const Device> device_;
  const std::uint32_t events_;
  std::vector<Line> streams_;
};

}  // namespace vedette::cuda
