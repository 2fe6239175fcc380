// How long the ops of a step take on a stream: an event before an op's work and one behind it. They are read when the
// device has passed them, which is a step later where nothing waits.
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
#include <utility>
#include <vector>

#include "cuda/device.h"
#include "gpu/marks.h"
#include "moves/executor.h"

namespace vedette::detail {

class StreamTimes {
 public:
  using Mark = Marks::Mark;

  explicit StreamTimes(std::shared_ptr<Marks> marks) : marks_(std::move(marks)) {}

  // An event costs the host a microsecond, and each op has two. `plan`: that of the step before; nullptr: none. While
  // steps follow one unchanged plan, one in 16 tells enough; `always`: each is timed. `stream`: of what comes first.
  void begin_step(std::uint64_t step, cuda::StreamHandle stream, const void* plan = nullptr, bool always = false);
  void forget_plan() noexcept { following_.plan = nullptr; }
  // Each returns the mark that it made, which it holds; Marks::none: it made none, since the step is not timed.
  Mark begin_op(cuda::StreamHandle stream, bool waits);  // its waits are queued, its work is not
  Mark end_op(cuda::StreamHandle stream);
  enum class Aside : std::uint8_t { trial, recomputation, waits_for_bytes, waits_for_room };
  Mark begin_aside(cuda::StreamHandle stream, Aside what);  // between ops, or in one; not in another one
  Mark end_aside(cuda::StreamHandle stream);
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
  static constexpr std::size_t most_open = 3;
  struct Apart {
    Mark begin = Marks::none, end = Marks::none;
    std::size_t op = 0;  // in which it is, or before which
    bool inside = false;
    Aside what = Aside::trial;
    bool ended = false;
  };
  struct Op {
    Mark begin = Marks::none, end = Marks::none;
    bool waits = false, ended = false;
  };
  struct Step {
    std::uint64_t number = 0, untimed_before = 0;
    Mark begin = Marks::none;
    bool failed = false;
    std::vector<Op> ops = {};
    std::vector<Apart> asides = {};  // in the order of their ops
  };
  struct Sums {  // by Aside
    Nanoseconds of[4];
    Nanoseconds all() const { return of[0] + of[1] + of[2] + of[3]; }
  };
  Mark record(cuda::StreamHandle stream);  // of the step at hand
  bool passed(const Step& step, bool wait);
  Nanoseconds between(Mark begin, Mark end) const;  // 0: an event failed, or the other way
  Executor::StepTimes times_of(const Step& step);
  void count(const Step& step, const Executor::StepTimes& times);
  void recycle(Step step);

  const std::shared_ptr<Marks> marks_;
  std::vector<Step> steps_;  // the oldest first; the last one may still run
  std::vector<Step> spare_;  // empty ones, whose room is used again
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
