// The steady steps' share of a GPU's energy.
#include <algorithm>

#include "profiler/report/report.h"

namespace vedette::report {

Energy energy_of(const Run& run) {
  Energy energy;
  std::vector<std::uint64_t> millijoules;
  double all = 0, watched_ns = 0;
  for (const std::size_t i : run.steady) {
    const std::optional<StepEnergy>& of_step = run.steps[i].energy;
    if (!of_step) continue;
    millijoules.push_back(of_step->millijoules);
    all += static_cast<double>(of_step->millijoules);
    watched_ns += static_cast<double>(of_step->watched.value);
  }
  if (millijoules.empty()) return energy;
  std::sort(millijoules.begin(), millijoules.end());
  energy.steps = millijoules.size();
  if (!run.machine.tiers.empty()) energy.device = run.machine.tiers[0].name;
  energy.median_j = static_cast<double>(millijoules[(millijoules.size() - 1) / 2]) / 1e3;
  energy.mean_j = all / static_cast<double>(energy.steps) / 1e3;
  if (watched_ns > 0) energy.watts = all * 1e6 / watched_ns;
  return energy;
}

}  // namespace vedette::report
