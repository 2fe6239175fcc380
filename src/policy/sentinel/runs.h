// The runs of ops for which one choice of intervals wants each long-lived tensor near, and the room that there is for
// them. Pure.
#pragma once
#include <cstdint>
#include <limits>
#include <vector>

#include "policy/sentinel/plan.h"

namespace vedette::sentinel {

struct Run {
  TensorIndex tensor;
  std::uint64_t first = 0, last = 0;  // ops: of its first use; of its last use or death. first < ops in a step
  bool fetched = false;               // else born at `first`
  bool leaves = false;                // else dies after `last`, or never goes
  bool writes = false;                // leaves changed: the slow tier needs the bytes
  bool for_ever = false;              // needed in every interval: no move at all
  std::uint64_t issue = 0;            // fetched: how many ops before `first` it is issued
  std::uint64_t most_ahead = std::numeric_limits<std::uint64_t>::max();  // of `issue`: before that it is used in place
  std::uint64_t due = 0;                                                 // leaves: the op before which it is gone
  // leaves: when the next fetch of the tensor may begin
  std::uint64_t latest_due = 0;
  bool left = false;     // in place: no run any more
  std::size_t uses = 0;  // in the run: the hotter is fetched first
};

class Demand {
 public:
  Demand(const Problem& problem, const Cut& cut);

  std::uint64_t intervals() const { return begins_.size() - 1; }
  std::uint64_t interval_of(std::uint64_t op) const { return interval_of_[op % n_] + op / n_ * intervals(); }
  std::uint64_t begin_of(std::uint64_t interval) const {
    return begins_[interval % intervals()] + interval / intervals() * n_;
  }
  // The op at which the interval before that of `op` begins: from there on it may be fetched.
  std::uint64_t window(std::uint64_t op) const;
  std::uint64_t reserved() const { return reserved_; }  // RS

  std::vector<Run> runs() const;  // by tensor, then by op
  // [op]: bytes of the runs beyond the most that long-lived tensors may have. O(ops + runs).
  std::vector<std::int64_t> excess(const std::vector<Run>& runs) const;

 private:
  void linear_runs(TensorIndex t, std::vector<Run>& found) const;
  void wrap_runs(std::vector<Run>& found) const;
  void end_runs(TensorIndex t, std::vector<Run>& found) const;

  const Trace& trace_;
  const Facts& facts_;
  const Layered& layered_;
  const std::uint64_t n_;
  std::uint64_t reserved_ = 0;
  std::vector<std::uint64_t> begins_, interval_of_;  // of intervals, one more at the end; of ops
  std::vector<std::int64_t> limit_;                  // [op]: the most bytes of long-lived tensors
};

}  // namespace vedette::sentinel
