// Events with times, behind points of a device's streams. The events are used again. The clock of ops and the reports
// for an observer hold the same event where both want the time of a point.
//
// Thread rule: any thread in which the device's context is current. Its lock is the innermost.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/device.h"

namespace vedette::detail {

class Marks {
 public:
  using Mark = std::size_t;
  static constexpr Mark none = ~Mark{0};

  explicit Marks(std::shared_ptr<const cuda::Device> device) : device_(std::move(device)) {}

  // Behind what is queued on `stream`, held once. none: the driver refused it.
  Mark record(cuda::StreamHandle stream);
  void hold(Mark mark);  // once more. none: nothing, as below
  void release(Mark mark);

  // Of marks that are held.
  Result<void> synchronize(Mark mark) const { return event(mark).synchronize(); }  // the calling thread waits
  Result<bool> passed(Mark mark) const { return event(mark).passed(); }
  Result<Nanoseconds> since(Mark mark, Mark begin) const { return event(mark).since(event(begin)); }  // both passed

 private:
  const cuda::Event& event(Mark mark) const {
    const std::lock_guard lock(mutex_);
    return events_[mark];
  }

  const std::shared_ptr<const cuda::Device> device_;
  mutable std::mutex mutex_;         // over all that follows
  std::deque<cuda::Event> events_;   // stay where they are
  std::vector<std::uint32_t> held_;  // by so many, of each
  std::vector<Mark> unused_;
};

}  // namespace vedette::detail
