// How long the ops of a step take on a stream: an event before an op's work and one behind it. They are read when the
// device has passed them, which is a step later where nothing waits.
//
// Work aside of ops (recomputation, trials) is no op's time. Of recomputation alone the time is kept.
//
// What always holds: at most `most_open` steps are being timed; a step that begins beyond that is not timed. The time
// of an op is that between its two events. Time between two ops counts as a stall where the later one waited for a
// transfer, else as the later one's time.
//
// Thread rule: one thread at a time, in which the device's context is current.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cuda/device.h"
#include "session/executor.h"

namespace vedette::detail {

class StreamTimes {
 public:
  explicit StreamTimes(std::shared_ptr<const cuda::Device> device) : device_(std::move(device)) {}

  // An event costs the host a microsecond, and each op has two. `plan`: that of the step before; nullptr: none. While
  // steps follow one unchanged plan, one in 16 tells enough; `always`: each is timed.
  void begin_step(std::uint64_t step, const void* plan = nullptr, bool always = false);
  void forget_plan() noexcept { following_.plan = nullptr; }
  void begin_op(cuda::StreamHandle stream, bool waits);  // its waits are queued, its work is not
  void end_op(cuda::StreamHandle stream);
  void begin_aside(cuda::StreamHandle stream, bool counts);  // between ops, or in one; not in another one
  void end_aside(cuda::StreamHandle stream);
  // The latest step that the device has passed, once; older ones are forgotten. `wait`: the calling thread waits for
  // the latest step. nullopt: none, or an event failed.
  std::optional<Executor::StepTimes> take(bool wait);
  // How many steps the one stands for that was taken: those before it that were not timed were like it.
  std::uint64_t steps_like_it() noexcept { return 1 + std::exchange(following_.untimed, 0); }

 private:
  static constexpr std::size_t most_open = 3;
  struct Aside {
    std::size_t begin = 0, end = 0;  // of events_
    bool counts = false, ended = false;
  };
  struct Op {
    std::size_t begin = 0, end = 0;  // of events_
    bool waits = false, ended = false;
    std::vector<Aside> before = {}, inside = {};
  };
  struct Step {
    std::uint64_t number = 0;
    std::vector<Op> ops;
    std::vector<Aside> before_next = {};  // the next op
    bool failed = false;
  };
  std::vector<Aside>& asides();  // of the op that runs, or comes
  std::optional<std::size_t> record(cuda::StreamHandle stream);
  bool passed(const Step& step, bool wait);
  Executor::StepTimes times_of(const Step& step);
  void recycle(const Step& step);

  const std::shared_ptr<const cuda::Device> device_;
  std::vector<cuda::Event> events_;
  std::vector<std::size_t> unused_;
  std::deque<Step> steps_;  // the last one may still run
  bool timing_ = false;
  struct Following {
    const void* plan = nullptr;
    std::uint64_t steps = 0, untimed = 0;  // one after the other; since the last one that was timed
  };
  Following following_;
};

}  // namespace vedette::detail
