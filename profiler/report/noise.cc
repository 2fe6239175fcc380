// The machine beside the steady steps. Whether other load disturbed them: steps that ran alike and took unlike times,
// and the machine's load meanwhile. And their share of a GPU's energy, and of a disk's endurance.
#include <fmt/core.h>

#include <algorithm>

#include "model/wear.h"
#include "profiler/report/report.h"

namespace vedette::report {

namespace {

constexpr std::size_t enough_steps = 4;  // to say how much they differ
constexpr Nanoseconds enough_time{100'000'000};
constexpr std::int64_t unlike = 5;   // a part of the median: more between the quartiles is no noise of a quiet machine
constexpr double much_steal = 0.02;  // of all processors' time
constexpr double much_waiting = 0.25;  // tasks of a quiet machine wait a little for each other, vedette's own as well
constexpr double many_switches = 200;  // a second, for each processor

template <class Of>
std::optional<double> median(const std::vector<const StepRow*>& steps, Of of) {
  std::vector<double> values;
  for (const StepRow* step : steps)
    if (const std::optional<double> value = of(*step)) values.push_back(*value);
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  return values[(values.size() - 1) / 2];
}

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

}  // namespace

Noise noise_of(const Run& run, const Headline& headline) {
  Noise noise;
  std::vector<const StepRow*> steps;
  for (const std::size_t i : run.steady)
    if (run.steps[i].noise && run.steps[i].time().value > 0) steps.push_back(&run.steps[i]);
  const auto processors = static_cast<double>(std::max<std::uint64_t>(1, run.origin.cores));
  const auto share = [&](std::optional<Nanoseconds> MachineUse::*of, double parts) {
    return median(steps, [&](const StepRow& step) {
      const MachineUse& machine = step.noise->machine;
      const auto time = machine.*of;
      return time && machine.elapsed.value > 0
                 ? std::optional(static_cast<double>(time->value) / static_cast<double>(machine.elapsed.value) / parts)
                 : std::nullopt;
    });
  };
  if (!steps.empty()) {
    noise.known = true;
    noise.processor = {static_cast<std::int64_t>(
        *median(steps, [](const StepRow& s) { return std::optional<double>(s.noise->processor.value); }))};
    noise.switches = static_cast<std::uint64_t>(
        *median(steps, [](const StepRow& s) { return std::optional<double>(s.noise->switches); }));
    noise.steal = share(&MachineUse::steal, processors);
    noise.processor_wait = share(&MachineUse::processor_wait, 1);
    noise.memory_wait = share(&MachineUse::memory_wait, 1);
    noise.io_wait = share(&MachineUse::io_wait, 1);
  }
  Nanoseconds watched;  // less than a tenth of a second is told and not judged
  for (const StepRow* step : steps)
    watched = std::min(enough_time, watched + std::clamp(step->noise->elapsed, Nanoseconds{}, enough_time));
  const bool long_enough = watched == enough_time;
  const auto because = [&](bool applies, const std::string& what) {
    if (!applies) return;
    noise.disturbed = true;
    noise.why +=
        (noise.why.empty() ? "It seems that something disturbed this run, so small differences say nothing: " : "; ") +
        what;
  };
  because(headline.steady_steps >= enough_steps &&
              (headline.step_quartiles.end - headline.step_quartiles.begin).value > headline.median_step.value / unlike,
          "steps that ran alike differ by more than a fifth (see the quartiles)");
  because(long_enough && noise.steal.value_or(0) > much_steal,
          "a hypervisor took " + percent(noise.steal.value_or(0)) + " of the processors' time");
  because(
      long_enough && noise.processor_wait.value_or(0) > much_waiting,
      "tasks of this machine waited for a processor in " + percent(noise.processor_wait.value_or(0)) + " of the time");
  const auto a_second = median(steps, [&](const StepRow& s) {
    return s.noise->elapsed.value > 0 ? std::optional(static_cast<double>(s.noise->switches) * 1e9 /
                                                      static_cast<double>(s.noise->elapsed.value) / processors)
                                      : std::nullopt;
  });
  because(long_enough && a_second.value_or(0) > many_switches,
          "another task took its processor " + std::to_string(noise.switches) + " times a step");
  if (noise.disturbed) noise.why += ".";
  return noise;
}

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
