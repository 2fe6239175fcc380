// vedette reproduce sim-vs-live: recorded runs beside the simulated step that each of them profiled, laid into its
// chunks, on its machine, by its policy, in its budget.
//
// bench/sim_vs_live.py asks more: it predicts from runs in which nothing moved. Here the profile of the run itself is
// known, so the comparison is of the simulator alone.
#include <fmt/core.h>

#include <filesystem>

#include "cli/chunked.h"
#include "cli/html.h"
#include "cli/lab.h"
#include "cli/reproduce.h"
#include "profiler/report/report.h"
#include "vedette/machine.h"

namespace vedette::cli {
namespace {

Json compared(const std::string& path) {
  const report::Run run = report::load_run(path).value();
  const report::Report told = report::analyse(run, {});
  Json made{{"program", run.program},
            {"policy", run.policy},
            {"budget", run.budget.value},
            {"peak", told.headline.peak.value},
            {"steps", told.headline.steady_steps},
            {"median_ns", told.headline.median_step.value},
            {"lower_ns", told.headline.step_quartiles.begin.value},
            {"upper_ns", told.headline.step_quartiles.end.value},
            {"simulated_ns", nullptr},
            {"disturbed", told.noise.why},
            {"error", ""}};
  auto policy = make_policy(run.policy, 1);
  if (told.headline.steady_steps == 0 || run.machine.tiers.size() < 2 || run.chunk.value == 0 || policy == nullptr) {
    made["error"] = "no step ran by a plan of a policy that is known here, over a slow tier";
    return made;
  }
  const Machine machine = report::machine_of_session(run);
  const Trace trace = report::simulated_trace(run);
  const auto ran = replay(machine.whole_tensors ? trace : in_chunks(trace, machine, run.policy), machine, *policy);
  if (ran)
    made["simulated_ns"] = ran->measured.time.value;
  else
    made["error"] = ran.error().message;
  return made;
}

}  // namespace

Reproduced reproduce_sim_vs_live(const ReproduceOptions& options) {
  if (options.recordings.empty())
    throw malformed(
        "name the recordings of runs with --recording; `train --record FILE` and VEDETTE_RECORD=FILE make "
        "them");
  Reproduced made{.title = "Simulated and live"};
  std::vector<Cell> cells;
  for (const std::string& path : options.recordings) {
    const std::string name = std::filesystem::path(path).stem().string();
    Input input = read_input(std::filesystem::path(path).filename().string(), path);
    input.text.clear();
    cells.push_back({.name = fmt::format("{}.{}", name, input.sha256.substr(0, 12)),
                     .inputs = input.sha256,
                     .compute = [path] { return compared(path); }});
    made.inputs.push_back(std::move(input));
  }
  const auto results = compute_cells(cells_folder(options), cells, options.threads, "reproduce", made.counts);
  std::vector<std::vector<std::string>> rows{
      {"recording", "program", "policy", "budget", "steps", "measured ms", "quartiles", "simulated ms", "off by"}};
  std::vector<BarGroup> groups;
  std::string why_disturbed;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Json& got = results[i];
    const auto ms = [&](const char* key) { return got[key].get<double>() / 1e6; };
    const bool known = got["simulated_ns"].is_number() && ms("median_ns") > 0;
    const std::string disturbed = got.value("disturbed", "").empty() ? "" : " (disturbed)";
    if (!disturbed.empty()) why_disturbed += made.inputs[i].name + ": " + got["disturbed"].get<std::string>() + "\n";
    rows.push_back(
        {made.inputs[i].name, got["program"].get<std::string>(), got["policy"].get<std::string>(),
         readable(Bytes{got["budget"].get<std::uint64_t>()}), fmt::format("{}", got["steps"].get<std::uint64_t>()),
         fmt::format("{:.1f}", ms("median_ns")), fmt::format("{:.1f} to {:.1f}", ms("lower_ns"), ms("upper_ns")),
         known ? fmt::format("{:.1f}", ms("simulated_ns")) : got["error"].get<std::string>(),
         known ? fmt::format("{:+.1f} %", 100 * (ms("simulated_ns") / ms("median_ns") - 1)) + disturbed : ""});
    if (known)
      groups.push_back(
          {.name = made.inputs[i].name, .values = {100 * std::min(1.0, ms("median_ns") / ms("simulated_ns"))}});
  }
  made.text = markdown_table(rows);
  if (!why_disturbed.empty()) made.text += "\n" + why_disturbed;
  const std::string svg = bars_svg({"measured over simulated, at most 100 %"}, groups, "measured over simulated step");
  made.files = {{"sim-vs-live.md", made.text}, {"sim-vs-live.csv", csv_table(rows)}, {"sim-vs-live.svg", svg}};
  made.body =
      "<p>The median of the steps that ran by a plan, and the same step simulated.</p>\n<div class=\"scroll\">" + svg +
      html_table(rows) + "</div>\n" + (why_disturbed.empty() ? "" : "<p>" + html_escaped(why_disturbed) + "</p>\n");
  return made;
}

}  // namespace vedette::cli
