// Plans of one trace compared by their cost on a machine: the time of the step, simulated, and a percentage of the time
// that links are busy. Bytes in flight cost the program some memory bandwidth, and of two equal plans the one that
// moves less is better. Pure.
#pragma once
#include <cstdint>
#include <limits>
#include <utility>

#include "sim/simulator.h"
#include "vedette/replay.h"
#include "vedette/result.h"

namespace vedette::planning {

struct LinkCost {
  std::int64_t percent = 1;  // of the time that links are busy
  TierIndex slow;            // the one tier that everything leaves to; 0: there are several
};

class PlanCost {
 public:
  // `trace` and `step` outlive it; the machine is kept.
  PlanCost(const Trace& trace, const sim::Step& step, Machine machine, const LinkCost& link_cost)
      : trace_(trace), step_(step), machine_(std::move(machine)), link_cost_(link_cost) {}

  // Two steps; figures are of the second.
  // Error: also where the second takes longer than `longest_ns`.
  Result<Replayed> simulate(const Plan& plan,
                            std::int64_t longest_ns = std::numeric_limits<std::int64_t>::max()) const {
    return sim::simulate(trace_, step_, machine_, plan, {.steps = 2}, longest_ns);
  }
  std::int64_t cost(const Replayed& simulated) const {
    return simulated.measured.time.value + busy_ns(simulated) / 100 * link_cost_.percent;
  }

 private:
  // Simulated busy times are cut where the last step begins; the time of what moved is not, and large percentages
  // notice that. With several slow tiers the bytes of each link are not known.
  std::int64_t busy_ns(const Replayed& simulated) const {
    if (link_cost_.slow.value != 0)
      return transfer_time(simulated.bytes_in, machine_.link(link_cost_.slow, {0})->bytes_per_s).value +
             transfer_time(simulated.bytes_out, machine_.link({0}, link_cost_.slow)->bytes_per_s).value;
    std::int64_t busy = 0;
    for (const Nanoseconds each : simulated.link_busy) busy += each.value;
    return busy;
  }

  const Trace& trace_;
  const sim::Step& step_;
  Machine machine_;
  LinkCost link_cost_;
};

}  // namespace vedette::planning
