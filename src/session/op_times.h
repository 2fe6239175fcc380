// How long the ops of the running step take, and how long they wait: compute time is the op thread's time less the
// stalls that the executor reports. An op that is planned in sections has one time for each section.
//
// It has no clock: the caller gives the time. (On a GPU these times come from events, a step later.)
//
// What always holds: times() and stalls() have one entry for each op or section that began in this step; no time is
// negative.
//
// Lock rule: the op thread's.
#pragma once
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "pack/units.h"

namespace vedette::detail {

class OpTimes {
 public:
  void begin_step(Nanoseconds now);
  // The program's time since the last op, less `stalled`, is this op's too.
  void begin_op(Nanoseconds now, Nanoseconds stalled);
  // From the last call until now; added to the running op or section. Returns it.
  Nanoseconds count_until(Nanoseconds now, Nanoseconds stalled);
  void next_section(Nanoseconds now, Nanoseconds stalled);
  Nanoseconds last_end() const noexcept { return last_end_; }
  void end_op(Nanoseconds now) { last_end_ = now; }   // time up to `now` outside of ops is no op's compute
  Nanoseconds of_latest(std::size_t sections) const;  // of the latest op, which had so many sections

  std::span<const Nanoseconds> times() const noexcept { return times_; }
  std::span<const Nanoseconds> stalls() const noexcept { return stalls_; }
  Nanoseconds step_time(Nanoseconds now) const noexcept { return now - step_began_; }

  // Profiling slows ops down; their times in the step before are the usual ones. Ops are known by hash and order.
  void remember_as_usual(std::span<const std::uint64_t> hashes, std::span<const LoggedOp> ops);
  void forget_usual() { usual_.clear(); }
  void replace_by_usual(std::span<const std::uint64_t> hashes, std::span<LoggedOp> ops) const;  // where that is less

 private:
  std::vector<Nanoseconds> times_, stalls_;
  Nanoseconds step_began_, last_end_, part_began_;
  std::unordered_map<std::uint64_t, std::vector<Nanoseconds>> usual_;  // by hash, in order
};

}  // namespace vedette::detail
