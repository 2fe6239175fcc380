// How long the ops of a step take on a stream: an event before an op's work and one behind it. They are read when the
// device has passed them, which is a step later where nothing waits. The observer's reports hear of each point here,
// and hold the same events.
//
// Work aside of ops (recomputation, trials) is no op's time. Of recomputation alone the time is kept. Waits for room
// are between two events, too, in an op or before it; they are stalls of that op.
//
// What always holds: at most `most_open` steps are being timed; a step that begins beyond that is not timed. The time
// of an op is that between its two events. Other time before an op counts as a stall where it waited for a transfer.
// Else it is the op's own, and before a step's first op none.
//
// Thread rule: one thread at a time, in which the device's context is current.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cuda/device.h"
#include "gpu/device_reports.h"
#include "gpu/marks.h"
#include "moves/executor.h"
#include "moves/scratch.h"

namespace vedette::detail {

class StreamTimes {
 public:
  // `reports`: nullptr: there is no observer.
  StreamTimes(std::shared_ptr<const cuda::Device> device, std::shared_ptr<DeviceReports> reports);

  // An event costs the host a microsecond, and each op has two. `plan`: that of the step before; nullptr: none. While
  // steps follow one unchanged plan, one in 16 tells enough; an observer hears of each. `stream`: of what comes first.
  void begin_step(std::uint64_t step, cuda::StreamHandle stream, const void* plan);
  void forget_plan() noexcept { following_.plan = nullptr; }
  void begin_op(cuda::StreamHandle stream, bool waits);  // its waits are queued, its work is not
  void end_op(cuda::StreamHandle stream);
  void begin_aside(cuda::StreamHandle stream, Scratch::Aside what);  // between ops, or in one; not in another one
  void end_aside(cuda::StreamHandle stream);
  // Where an op or a copy may be late. Waits of a recomputation, or of a trial, are its own time.
  void begin_wait(cuda::StreamHandle stream, bool for_room);
  void end_wait(cuda::StreamHandle stream);
  // The latest step that the device has passed, once; older ones are forgotten. `wait`: the calling thread waits for
  // the latest step. nullopt: none, or an event failed.
  std::optional<Executor::StepTimes> take(bool wait);
  // Of all steps that the device is known to have passed, once each; those that were not timed count as the next one
  // that was.
  struct Totals {
    std::uint64_t stall_count = 0, stall_ns = 0, recompute_ns = 0;
  };
  const Totals& totals() const noexcept { return totals_; }

 private:
  using Mark = Marks::Mark;
  enum class Kind : std::uint8_t { trial, recomputation, waits_for_bytes, waits_for_room };
  static constexpr std::size_t most_open = 3;
  struct Apart {
    Mark begin = Marks::none, end = Marks::none;
    std::size_t op = 0;  // in which it is, or before which
    bool inside = false;
    Kind kind = Kind::trial;
    bool ended() const noexcept { return end != Marks::none; }
  };
  struct Op {
    Mark begin = Marks::none, end = Marks::none;
    bool waits = false;
    bool ended() const noexcept { return end != Marks::none; }
  };
  struct Step {
    std::uint64_t number = 0, untimed_before = 0;
    Mark begin = Marks::none;
    bool failed = false;
    std::vector<Op> ops = {};
    std::vector<Apart> asides = {};  // in the order of their ops
  };
  struct Sums {  // by Kind
    Nanoseconds of[4];
    Nanoseconds all() const { return of[0] + of[1] + of[2] + of[3]; }
  };
  // Each returns the mark that it made, which the step holds; Marks::none: it is not timed, or the driver refused.
  Mark record(cuda::StreamHandle stream);
  Mark mark_begin(cuda::StreamHandle stream, Kind kind);
  Mark mark_end(cuda::StreamHandle stream);
  bool passed(const Step& step, bool wait);
  Nanoseconds between(Mark begin, Mark end) const;  // 0: an event failed, or the other way
  Executor::StepTimes times_of(const Step& step);
  void count(const Step& step, const Executor::StepTimes& times);
  void recycle(Step step);

  const std::shared_ptr<DeviceReports> reports_;
  const std::shared_ptr<Marks> marks_;
  std::optional<Scratch::Aside> aside_;  // that runs
  std::vector<Step> steps_;              // the oldest first; the last one may still run
  std::vector<Step> spare_;              // empty ones, whose room is used again
  bool timing_ = false;
  struct Following {
    const void* plan = nullptr;
    std::uint64_t steps = 0;  // one after the other
  };
  Following following_;
  std::uint64_t untimed_ = 0;  // steps since the last one that was timed
  Totals totals_;
};

}  // namespace vedette::detail
