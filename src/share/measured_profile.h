// The stall of a job's steps by its lease, as its steps told it.
//
// Thread rule: as a value.
#pragma once
#include <span>
#include <vector>

#include "share/decide.h"

namespace vedette::share {

class MeasuredProfile {
 public:
  // A step that had `lease` all the time. Leases that are nearer to each other than 1/16 share a point. A point stays
  // what it is until steps tell something else by an eighth of the step's time: else leases would change with each one.
  void add(Bytes lease, Nanoseconds stall, Nanoseconds step);
  std::span<const StallAt> points() const noexcept { return points_; }  // by lease, ascending

 private:
  std::vector<StallAt> points_;
};

}  // namespace vedette::share
