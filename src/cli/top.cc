// vedette top: the counters of processes that train right now, from the page that each of them shows.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <array>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/readable.h"
#include "cli/endurance.h"
#include "cli/finite.h"
#include "cli/print.h"
#include "cli/verbs.h"
#include "profiler/gpu_bytes.h"
#include "profiler/live.h"
#include "profiler/live_heat.h"

namespace vedette::cli {

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<std::int64_t> pids;
  double interval = 1;
  std::uint64_t count = 0;  // 0: until interrupted
  bool once = false, json = false;
  std::string endurance;
  std::string directory = live_directory;
};

struct Sample {
  Clock::time_point when;
  LiveReading reading;
};

std::string time(double ns) {
  return ns >= 1e10 ? fmt::format("{:.2f} s", ns / 1e9) : fmt::format("{:.1f} ms", ns / 1e6);
}
std::string size(double bytes) { return readable({static_cast<std::uint64_t>(bytes)}); }
std::string number(double count) { return fmt::format("{:.0f}", count); }
std::string joules(double mj) { return fmt::format("{:.1f} J", mj / 1e3); }

const char* phase_of(const LiveReading& reading) {
  const std::uint64_t phase = reading[Live::phase];
  return live_phases[phase < std::size(live_phases) ? phase : 0];
}

HeatBytes heat_of(const LiveReading& reading) {
  HeatBytes heat{};
  for (std::size_t bin = 0; bin < heat.size(); ++bin) heat[bin] = reading[heat_bin(bin)];
  return heat;
}

// Of the bound; nothing where none is known.
std::optional<double> speed_of(const LiveReading& r) {
  if (r[Live::bound_ns] == 0 || r[Live::last_step_ns] == 0) return std::nullopt;
  return static_cast<double>(r[Live::bound_ns]) / static_cast<double>(r[Live::last_step_ns]);
}

Bytes on_disk(const LiveReading& r) { return {r[Live::disk_bytes_out]}; }
Nanoseconds of_steps(const LiveReading& r) { return {static_cast<std::int64_t>(r[Live::steps_ns])}; }

// For other programs: each process with its numbers, in the order of Live.
nlohmann::ordered_json json_of(const LiveReading& reading, const std::optional<Endurance>& rated) {
  constexpr std::array names{"step",       "last_step_ns", "phase",          "ops",
                             "bytes_in",   "bytes_out",    "bytes_dropped",  "moves",
                             "stall_ns",   "stalls",       "faults",         "resident_bytes",
                             "live_bytes", "budget_bytes", "dropped_events", "energy_mj"};
  constexpr std::array later{std::pair{"disk_bytes_out", Live::disk_bytes_out}, std::pair{"bound_ns", Live::bound_ns},
                             std::pair{"steps_ns", Live::steps_ns}, std::pair{"bytes_in_place", Live::bytes_in_place}};
  static_assert(names.size() + std::size(gpu_bytes_fields) + later.size() + heat_bins ==
                static_cast<std::size_t>(Live::count_));
  nlohmann::ordered_json json{{"pid", reading.pid}, {"program", reading.program}, {"policy", reading.policy}};
  for (std::size_t i = 0; i < names.size(); ++i) json[names[i]] = reading[static_cast<Live>(i)];
  for (const GpuBytesField& each : gpu_bytes_fields) json[each.key] = reading[each.live];
  json["phase"] = phase_of(reading);
  for (const auto& [name, which] : later) json[name] = reading[which];
  const auto speed = speed_of(reading);
  json["speed_of_bound"] = speed ? nlohmann::ordered_json(*speed) : nlohmann::ordered_json(nullptr);
  json["disk_bytes_a_day"] = bytes_a_day(on_disk(reading), of_steps(reading));
  json["endurance_share_a_day"] =
      rated ? nlohmann::ordered_json(endurance_a_day(on_disk(reading), of_steps(reading), rated))
            : nlohmann::ordered_json(nullptr);
  json["heat_bytes"] = heat_of(reading);
  return json;
}

// Bytes that live, from hot to cold: a bar for each bin of ages, and those that were not used for a quarter of a step.
void print_heat(const LiveReading& r) {
  const HeatBytes heat = heat_of(r);
  const std::uint64_t all = std::accumulate(heat.begin(), heat.end(), std::uint64_t{0});
  if (all == 0) return;
  constexpr std::array bars{" ", "\u2581", "\u2582", "\u2583", "\u2584", "\u2585", "\u2586", "\u2587", "\u2588"};
  std::string row;
  for (const std::uint64_t bytes : heat) row += bars[bytes == 0 ? 0 : 1 + bytes * 7 / all];
  const std::uint64_t cold = heat[heat_bins - 1] + heat[heat_bins - 2];
  print("  heat      hot |{}| cold: {} of {} not used for a quarter of a step or longer\n", row, readable({cold}),
        readable({all}));
}

// The last column is the increase since the last look, a second.
void print_sample(const Sample& now, const Sample* before, const std::optional<Endurance>& rated) {
  const LiveReading& r = now.reading;
  const double seconds = before == nullptr ? 0 : std::chrono::duration<double>(now.when - before->when).count();
  print("{} {}, policy {}, step {} ({}), last step {}\n", r.pid, r.program, r.policy.empty() ? "-" : r.policy,
        r[Live::step], phase_of(r), time(static_cast<double>(r[Live::last_step_ns])));
  print("  resident {} of {}, alive {}\n", readable({r[Live::resident_bytes]}), readable({r[Live::budget_bytes]}),
        readable({r[Live::live_bytes]}));
  GpuBytes gpu;
  for (const GpuBytesField& each : gpu_bytes_fields) gpu.*each.bytes = {r[each.live]};
  if (gpu.on_device.value > 0) {
    print("  on the GPU {}, {} beside the budget{}\n", readable(gpu.on_device), readable(gpu.beside),
          parts_beside(gpu));
    print("  host, locked: {}\n", words_of_locked(gpu));
  }
  print_heat(r);
  if (const auto speed = speed_of(r))
    print("  speed     {:.0f} % of the bound: no plan's step is faster than {}\n", 100 * *speed,
          time(static_cast<double>(r[Live::bound_ns])));
  if (const std::string a_day = readable_daily(on_disk(r), of_steps(r), rated); !a_day.empty())
    print("  disk      {} at the speed so far\n", a_day);
  print("  {:<10}{:>14}{:>14}\n", "", "in all", "a second");
  const auto row = [&](const char* name, Live which, std::string (*words)(double)) {
    const bool rated = seconds > 0 && r[which] >= before->reading[which];
    print("  {:<10}{:>14}{:>14}\n", name, words(static_cast<double>(r[which])),
          rated ? words(static_cast<double>(r[which] - before->reading[which]) / seconds) : "-");
  };
  row("moved in", Live::bytes_in, size);
  row("moved out", Live::bytes_out, size);
  if (r[Live::disk_bytes_out] > 0) row("to disk", Live::disk_bytes_out, size);
  if (r[Live::bytes_in_place] > 0) row("in place", Live::bytes_in_place, size);
  row("stalled", Live::stall_ns, time);
  row("faults", Live::faults, number);
  row("ops", Live::ops, number);
  if (r[Live::energy_mj] > 0) row("energy", Live::energy_mj, joules);
  if (r[Live::dropped_events] > 0)
    print("  {} events were not recorded (the recorder's ring was full)\n", r[Live::dropped_events]);
}

// False: nothing is left to look at.
bool look(const Options& options, std::map<std::int64_t, Sample>& last, const std::optional<Endurance>& rated) {
  const std::vector<std::int64_t> pids = options.pids.empty() ? live_processes(options.directory) : options.pids;
  std::map<std::int64_t, Sample> seen;
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const std::int64_t pid : pids) {
    auto reading = read_live(pid, options.directory);
    if (!reading) {
      if (last.contains(pid) || options.pids.empty()) continue;  // it has ended meanwhile
      throw Failure(reading.error());
    }
    const Sample& now = seen[pid] = {Clock::now(), *std::move(reading)};
    const auto before = last.find(pid);
    if (options.json) {
      all.push_back(json_of(now.reading, rated));
    } else {
      print_sample(now, before == last.end() ? nullptr : &before->second, rated);
    }
  }
  if (options.json) print_data(all.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  last = std::move(seen);
  return !last.empty();
}

void run(const Options& options) {
  const auto rated = endurance_of(options.endurance);
  std::map<std::int64_t, Sample> last;
  const bool clears = ::isatty(STDOUT_FILENO) != 0 && !options.once && !options.json;
  for (std::uint64_t shown = 0; options.count == 0 || shown < options.count; ++shown) {
    if (shown > 0) std::this_thread::sleep_for(std::chrono::duration<double>(options.interval));
    if (clears) clear_screen();
    const bool any = look(options, last, rated);
    if (!any && shown == 0 && !options.json)
      throw Failure(
          {Cause::unavailable,
           "no process of this user trains under a guard here; a guard shows its counters from its first step on"});
    std::fflush(stdout);
    if (!any || options.once) return;
  }
}

}  // namespace

void add_top(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("top", "Shows the counters of all guards that run right now");
  auto options = std::make_shared<Options>();  // shared: the callback is copied into the App
  verb->add_option("pid", options->pids, "processes; all that have a guard, if none is named");
  verb->add_option("--interval", options->interval, "seconds between two looks")
      ->capture_default_str()
      ->check(finite_between(0.05, 3600));
  verb->add_option("--count", options->count, "how many looks; 0: until interrupted")->capture_default_str();
  verb->add_option("--endurance", options->endurance,
                   "the rating of the disk that is written: " + std::string(endurance_usage));
  verb->add_flag("--once", options->once, "one look");
  verb->add_flag("--json", options->json, "a line of JSON for each look, for other programs");
  verb->callback([options] { run(*options); });
}

}  // namespace vedette::cli
