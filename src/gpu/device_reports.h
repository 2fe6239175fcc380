// The observer's events of a GPU's session. Ops and moves are announced when their work is queued, and have times when
// the device has passed them. So the announcements of a step are kept, and an event stands before and behind each op
// and each copy. When all of these have passed the step is reported, in order: a step later where nothing waits.
//
// Times of the device are reported on the host's clock: an event that has passed is the zero of both, and moves on with
// each step. What always holds: no time lies before its work was queued. Reported steps do not overlap; a step ends
// when its last op has, or later where the host ends it later. Counters of a step count its own stalls.
//
// The clock of ops (stream_times.h) has events at most of these points, too: one is held by both. Where an event is
// refused, the host's time stands for it.
//
// An observer that is a GpuObserver, too, is told each op's stream, how to read the device's energy, and what the
// tables are.
//
// Thread rule: the Observer's calls as Observer says; others from any thread in which the device's context is current.
// Its lock is the innermost: no function calls the session or the executor.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/device.h"
#include "gpu/marks.h"
#include "vedette/birth_observer.h"
#include "vedette/gpu_observer.h"
#include "vedette/observer.h"

namespace vedette::detail {

class DeviceReports final : public Observer, public BirthObserver {
 public:
  using Shared = Marks::Mark;

  DeviceReports(std::shared_ptr<const cuda::Device> device, Observer* observer);
  const std::shared_ptr<Marks>& marks() const noexcept { return marks_; }
  DeviceReports(const DeviceReports&) = delete;
  DeviceReports& operator=(const DeviceReports&) = delete;

  // --- of the executor: an op, a copy
  // `shared`: a mark of the same point, which is held; Marks::none: there is none yet.
  void op_queues(cuda::StreamHandle stream, bool waits, Shared shared);  // its waits are queued, its work is not
  void op_is_queued(cuda::StreamHandle stream, Shared shared);
  void move_queues(cuda::StreamHandle stream);
  // The copy of the latest move_queues() is queued, or one of those in its call; `move` lacks its times.
  void move_is_queued(const MoveRecord& move, cuda::StreamHandle stream);
  // Work that is queued next may be late, though no op says so: it waits for room, or for bytes.
  void wait_queues(cuda::StreamHandle stream, bool for_room, Shared shared);
  void wait_is_queued(cuda::StreamHandle stream, Shared shared);
  void again_queues(cuda::StreamHandle stream, Shared shared);  // recomputations
  void again_is_queued(cuda::StreamHandle stream, Shared shared);
  void has_tables(const GpuTableCounters& tables);
  // Waits for the device, reports the rest, and forgets the observer.
  void finish();

  // --- BirthObserver: passed on
  bool wants_births() const noexcept override;
  void born(std::uint64_t step, std::uint32_t birth) noexcept override;
  void births_profiled(std::uint64_t step, std::span<const std::uint32_t> births) override;

  // --- Observer
  void opened(const Machine& machine, std::string_view policy, Bytes budget, Bytes chunk) override;
  void resized(Nanoseconds now, Bytes budget) override;
  void moves_by(std::string_view mechanism) override;
  void profiled(std::uint64_t step, std::uint64_t bucket, const Trace& trace) override;
  void planned(std::uint64_t step, std::uint64_t bucket, const Trace& units, const Plan& plan) override;
  void placed(std::uint64_t step, std::uint64_t bucket, std::span<const Placed> units,
              std::span<const Placed> tensors) override;
  void recomputed(const RecomputeRecord& record) override;
  void step_began(std::uint64_t step, Nanoseconds now) override;
  void op_began(std::uint64_t step, OpIndex op, std::string_view name, Nanoseconds now) override;
  void sampled(std::uint64_t step, OpIndex op, Bytes resident, Bytes live) override;
  void op_ended(std::uint64_t step, OpIndex op, Nanoseconds now) override;
  void step_ran(std::uint64_t step, std::string_view phase, std::optional<std::uint64_t> bucket) override;
  void step_ended(std::uint64_t step, Nanoseconds now, const Counters& of_this_step) override;

 private:
  static constexpr Shared none = Marks::none;
  struct Mark {  // a point of a stream
    Shared event = none;
    Nanoseconds queued;  // by the host
  };
  struct Op {
    OpIndex op;
    std::string name;
    Mark begin, end;
    bool waits = false;
    std::uint32_t stream = 0;  // as GpuObserver counts them
    Bytes resident, live;
  };
  struct Move {
    MoveRecord record;
    Mark begin, end;
  };
  struct Wait {
    bool for_room = false;
    Mark begin, end;
  };
  struct Again {             // recomputed in one go
    std::size_t before = 0;  // the op of that number, which comes next
    std::vector<RecomputeRecord> records;
    Mark begin, end;
  };
  struct Step {
    std::uint64_t number = 0;
    Nanoseconds began, ended;  // by the host
    std::vector<Op> ops;
    std::vector<Move> moves;
    std::vector<Wait> waits = {};
    std::vector<Again> again = {};
    std::string phase;
    std::optional<std::uint64_t> bucket;
    Counters counters;
  };

  Mark mark(cuda::StreamHandle stream, Shared shared = none);
  std::uint32_t number_of(cuda::StreamHandle stream);
  template <typename Visit>
  static void each_mark(const Step& step, Visit visit);
  bool has_passed(const Step& step, bool wait);
  void tell_what_is_known(bool wait);
  void tell(const Step& step);
  void tell_moves(const Step& step);
  Nanoseconds tell_again(const Step& step, Nanoseconds step_began, Counters& counters);  // the end of the last one
  Nanoseconds tell_ops(const Step& step, Nanoseconds step_began, Counters& counters);    // the end of the last one
  class Stalls;                                                                          // of one step
  void give_back(Mark& mark);
  Mark set_clock(const Step& step);  // the step's latest event
  Nanoseconds time_of(const Mark& mark) const;

  const std::shared_ptr<const cuda::Device> device_;
  const std::shared_ptr<Marks> marks_;
  std::mutex mutex_;  // over all that follows
  Observer* observer_;
  GpuObserver* gpu_observer_;                // nullptr: the observer is none
  BirthObserver* const birth_observer_;      // as well
  std::vector<cuda::StreamHandle> streams_;  // by number
  std::optional<Step> running_;              // nullopt: before the first step
  std::deque<Step> ended_;                   // the oldest first
  Mark op_begin_, op_end_, move_begin_;
  bool op_waits_ = false;
  std::uint32_t op_stream_ = 0;
  Shared zero_ = none;     // an event that has passed,
  Nanoseconds zero_time_;  // and when that was
  Nanoseconds told_until_;
};

}  // namespace vedette::detail
