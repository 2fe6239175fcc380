// vedette report RUN -o report.html, --text, --json: a recorded run, for people and for scripts.
//
// The figures are profiler/report's. Here they get a simulator: the run's own policy, replayed on its profile with
// other budgets.
#include "profiler/report/report.h"

#include <fmt/core.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/chunked.h"
#include "cli/endurance.h"
#include "cli/finite.h"
#include "cli/lab.h"
#include "cli/output_file.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "vedette/bound.h"
#include "vedette/policy.h"
#include "vedette/replay.h"

namespace vedette::cli {

namespace {

struct ReportVerb {
  std::string path, other, output, machine, directory = ".", policy, endurance;
  bool text = false, json = false, no_simulation = false;
  double plain_ms = 0, simulate_seconds = 20;
  std::vector<std::uint64_t> steps;
};

struct Asked {  // by --policy
  std::string name;
  std::optional<PolicyEntry> entry;
};

Asked asked_by(const ReportVerb& verb) {
  if (verb.policy.empty()) return {};
  const std::vector<PolicyEntry> named = policies_named(verb.policy);
  if (named.size() != 1) throw malformed("one policy is simulated; `vedette compare` runs several");
  return {.name = verb.policy, .entry = named.front()};
}

// Plans and replays until the time given is used up, from the first question on: planning a large step anew for each
// point can take long.
//
// A recording names policies of vedette's list alone, since its sender could name a library of their own. A library is
// loaded where the command line names it (`asked`, empty where it names none).
report::Simulate simulator(double seconds, const std::string& what, const Asked& asked,
                           std::shared_ptr<Progress> progress) {
  using Clock = std::chrono::steady_clock;
  const auto length = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  return [=, until = std::make_shared<std::optional<Clock::time_point>>()](
             const Trace& trace, const Machine& machine, std::string_view name) -> Result<report::Simulated> {
    if (!*until) *until = Clock::now() + length;
    if (Clock::now() > **until) return Error{Cause::unavailable, "not simulated: --simulate-seconds were over"};
    auto policy = asked.entry && name == asked.name ? asked.entry->make(1) : make_policy(name, 1);
    if (policy == nullptr)
      return Error{Cause::unavailable,
                   "no policy '" + std::string(name) + "' is known here; --policy names another, or a library"};
    progress->say("simulates " + what + ", the policy " + std::string(name) + " in " +
                  readable(machine.tiers[0].capacity));
    auto ran = replay(trace, machine, *policy);
    if (!ran) return ran.error();
    return report::Simulated{.step = ran->measured.time,
                             .stall = ran->measured.stall,
                             .bytes_in = ran->bytes_in,
                             .bytes_out = ran->bytes_out,
                             .late = ran->measured.late.size() + ran->unplanned,
                             .recompute = ran->recompute};
  };
}

void require_steps(const report::Run& run, const std::vector<std::uint64_t>& wanted) {
  for (const std::uint64_t step : wanted) {
    const auto is_it = [&](const report::StepRow& row) { return row.step == step; };
    if (std::any_of(run.steps.begin(), run.steps.end(), is_it)) continue;
    const auto [first, last] = run.steps.empty() ? std::pair<std::uint64_t, std::uint64_t>{}
                                                 : std::pair{run.steps.front().step, run.steps.back().step};
    throw malformed(run.steps.empty()
                        ? "--step: the recording has no steps"
                        : fmt::format("--step: the recording has no step {}; it has {} to {}", step, first, last));
  }
}

report::Report analysed(const std::string& path, const ReportVerb& verb) {
  const auto progress = std::make_shared<Progress>("report", "reads " + path);
  report::ReportOptions options;
  options.endurance = endurance_of(verb.endurance);
  report::Run run = report::load_run(path, {.steps = verb.steps}).value();
  if (path == verb.path) require_steps(run, verb.steps);
  options.policy = verb.policy.empty() && run.policy.empty() ? "vedette" : verb.policy;
  const Asked asked = asked_by(verb);
  if (!verb.machine.empty()) options.machine = read_machine(verb.machine, verb.directory);
  if (options.machine && !run.origin.imported.empty()) run.machine = *options.machine;  // it names none
  if (!verb.no_simulation) {
    options.simulate = simulator(verb.simulate_seconds, "other budgets", asked, progress);
    options.bound = lower_bound;
    options.adviser = {.simulate = simulator(verb.simulate_seconds / 2, "changes", asked, progress),
                       .in_chunks = in_chunks,
                       .policies = {"vedette", "sentinel", "g10", "capuchin", "on-demand"}};
    options.pricer = {.simulate = simulator(verb.simulate_seconds / 2, "prices", asked, progress),
                      .prices = memory_prices};
  }
  if (verb.plain_ms > 0) options.plain_step = Nanoseconds{static_cast<std::int64_t>(verb.plain_ms * 1e6)};
  return report::analyse(run, options);
}

void print_report(const ReportVerb& verb) {
  auto output =
      optional_output(verb.output == "-" ? "" : verb.output, {verb.path, verb.other, verb.machine, verb.policy});
  const report::Report run = analysed(verb.path, verb);
  std::unique_ptr<report::Report> other;
  if (!verb.other.empty()) other = std::make_unique<report::Report>(analysed(verb.other, verb));
  const std::string text = verb.json   ? format_json(run, other.get()) + "\n"
                           : verb.text ? format_text(run, other.get())
                                       : format_page(run, other.get());
  if (!output) return print_data(text);
  output->stream() << text;
  output->finish();
  if (verb.json || verb.text) return;
  print("{}: {:.1f} MB, opens in a browser{}\n", verb.output, static_cast<double>(text.size()) / 1e6,
        report::page_has_charts() ? "" : " (without charts: this vedette was built without Plotly)");
}

}  // namespace

void add_report(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("report", "Shows what a recorded run did: a page, text or JSON");
  auto options = std::make_shared<ReportVerb>();  // shared: the callback is copied into the App
  verb->add_option("file", options->path, "a recording, for instance demo.vedette")->required();
  verb->add_option("-o,--output", options->output, "the file to write; -: standard output");
  verb->add_option("--compare", options->other, "another recording, shown beside the first");
  auto* text = verb->add_flag("--text", options->text, "the headline and the tables, for a terminal");
  verb->add_flag("--json", options->json, "every figure, for scripts (docs/report.md lists the keys)")->excludes(text);
  verb->add_option("--step", options->steps,
                   "steps whose events the timeline has to hold, if it cannot hold all; with commas")
      ->allow_extra_args(false)
      ->delimiter(',');
  verb->add_option("--plain-ms", options->plain_ms,
                   "what a step takes without vedette, in milliseconds, if the recording does not say")
      ->check(finite_between(0.001, 1e9));
  verb->add_option("--machine", options->machine,
                   "simulate other budgets on another machine than the recording's: " + machine_words());
  verb->add_option("--slow", options->directory, "the directory whose disk is this-machine's slow tier")
      ->capture_default_str();
  verb->add_option("--policy", options->policy, "simulate another policy than the recording's");
  verb->add_option("--endurance", options->endurance,
                   "the rating of the disk that was written: " + std::string(endurance_usage));
  verb->add_flag("--no-simulation", options->no_simulation, "other budgets: no simulated steps");
  verb->add_option("--simulate-seconds", options->simulate_seconds, "time to spend on other budgets, a recording")
      ->capture_default_str()
      ->check(finite_between(0, 1e6));
  verb->callback([options] {
    if (!options->json && !options->text && options->output.empty()) options->output = "report.html";
    print_report(*options);
  });
}

}  // namespace vedette::cli
