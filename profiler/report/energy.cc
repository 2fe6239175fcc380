// The steady steps' share of a GPU's energy, and of a disk's endurance.
#include <algorithm>

#include "model/wear.h"
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

Wear wear_of(const Run& run, const ReportOptions& options) {
  Wear wear{.known = !run.steady.empty() && run.machine.tiers.size() > 1 && run.machine.tiers.back().is_disk()};
  if (!wear.known) return wear;
  Bytes all;
  Nanoseconds time;
  for (const std::size_t i : run.steady) {
    all += written_to_disk(run.steps[i].counters, run.machine);
    time += run.steps[i].time();
  }
  wear.a_step = {all.value / run.steady.size()};
  wear.bytes_a_day = bytes_a_day(all, time);
  if (options.endurance) {
    wear.share_a_day = endurance_a_day(all, time, options.endurance);
    wear.rated = options.endurance->words;
  }
  wear.words = readable_daily(all, time, options.endurance);
  return wear;
}

}  // namespace vedette::report
