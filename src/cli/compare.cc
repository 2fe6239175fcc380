// vedette compare TRACE...: every policy on the same steps and the same machine, a row each, beside a bound that no plan can pass.
#include <fmt/core.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/lab.h"
#include "cli/verbs.h"
#include "vedette/bound.h"

namespace vedette::cli {
namespace {

using Json = nlohmann::ordered_json;

struct CompareOptions {
  std::vector<std::string> traces, fast;
  std::string policies = "all", machine = "a100-g10", directory = ".", page;
  std::uint64_t seed = 1;
  std::uint32_t noise = 0;
  bool json = false;
};

Json json_of(const Row& row) {
  Json made{{"trace", row.trace},
            {"fast_bytes", row.fast.value},
            {"fast_fraction", row.fraction},
            {"policy", row.policy},
            {"step_ns", nullptr},
            {"ideal_ns", row.ideal.value},
            {"percent_of_ideal", nullptr},
            {"lower_bound_ns", row.lower_bound.value},
            {"stall_ns", nullptr},
            {"bytes_in", nullptr},
            {"bytes_out", nullptr},
            {"recompute_ns", nullptr},
            {"peak_bytes", nullptr},
            {"plan_ns", row.plan_time.value},
            {"error", nullptr}};
  if (!row.replayed) {
    made["error"] = row.error;
    return made;
  }
  made["step_ns"] = row.replayed->measured.time.value;
  made["percent_of_ideal"] = row.percent_of_ideal();
  made["stall_ns"] = row.replayed->measured.stall.value;
  made["bytes_in"] = row.replayed->bytes_in.value;
  made["bytes_out"] = row.replayed->bytes_out.value;
  made["recompute_ns"] = row.replayed->recompute.value;
  made["peak_bytes"] = row.replayed->peak.value;
  return made;
}

void print_heading(const Row& row) {
  fmt::print("\n{}: fast memory {} ({:.1f} % of peak), ideal {:.1f} ms, no plan above {:.1f} % of it\n", row.trace, readable(row.fast),
             100 * row.fraction, static_cast<double>(row.ideal.value) / 1e6,
             row.lower_bound.value == 0 ? 100.0 : 100.0 * static_cast<double>(row.ideal.value) / static_cast<double>(row.lower_bound.value));
  fmt::print("  {:<16} {:>8} {:>11} {:>11} {:>11} {:>11} {:>11} {:>10}\n", "policy", "% ideal", "stall ms", "again ms", "in", "out", "peak", "plan ms");
}

void print_row(const Row& row, const PolicyEntry& entry) {
  const std::string mark = entry.bound ? " (bound)" : entry.partial.empty() ? "" : " *";
  if (!row.replayed) {
    fmt::print("  {:<16} {}\n", row.policy + mark, row.error);
    return;
  }
  const Replayed& got = *row.replayed;
  const auto ms = [](Nanoseconds time) { return static_cast<double>(time.value) / 1e6; };
  fmt::print("  {:<16} {:>8.2f} {:>11.1f} {:>11.1f} {:>11} {:>11} {:>11} {:>10.1f}\n", row.policy + mark, row.percent_of_ideal(),
             ms(got.measured.stall), ms(got.recompute), readable(got.bytes_in), readable(got.bytes_out), readable(got.peak), ms(row.plan_time));
}

void compare(const CompareOptions& options) {
  const Machine machine = read_machine(options.machine, options.directory);
  const std::vector<PolicyEntry> entries = policies_named(options.policies);
  std::vector<Row> rows;
  std::vector<std::string> sizes;
  for (const std::string& each : options.fast) {
    for (const std::string& size : split(each, ',')) sizes.push_back(size);
  }
  if (sizes.empty()) sizes.emplace_back();
  for (const std::string& file : options.traces) {
    const Trace trace = read_trace(file);
    for (const std::string& size : sizes) {
      Machine sized = machine;
      if (!size.empty()) sized.tiers[0].capacity = read_size(size, trace);
      const Nanoseconds bound = lower_bound(trace, sized);
      for (const PolicyEntry& entry : entries) {
        rows.push_back(run_policy(trace, sized, entry, options.seed, {.noise_percent = options.noise, .seed = options.seed}));
        rows.back().lower_bound = bound;
        if (options.json) continue;
        if (entry.name == entries.front().name) print_heading(rows.back());
        print_row(rows.back(), entry);
        std::fflush(stdout);
      }
    }
  }
  if (options.json) {
    Json all = Json::array();
    for (const Row& row : rows) all.push_back(json_of(row));
    fmt::print("{}\n", all.dump(1));
  } else if (std::any_of(entries.begin(), entries.end(), [](const PolicyEntry& each) { return !each.partial.empty(); })) {
    fmt::print("\n* partial: the paper uses what a trace cannot express (vedette plan --policies says what)\n");
  }
  if (options.page.empty()) return;
  std::ofstream page(options.page);
  page << compare_page(rows);
  if (!page.flush()) throw Failure({Cause::system, options.page + " cannot be written"});
}

}  // namespace

void add_compare(CLI::App& app) {
  auto* verb = app.add_subcommand("compare", "Replays steps under every policy: percent of ideal, stalls, bytes, beside a proven bound");
  const auto options = std::make_shared<CompareOptions>();
  verb->add_option("trace", options->traces, "Files in the format vedette-trace-1")->required();
  verb->add_option("--fast", options->fast, "Sizes of the fastest tier: 20% of the trace's peak, 8GiB; several with commas (default: the machine's)");
  verb->add_option("--policies", options->policies, "all, or names with commas")->capture_default_str();
  verb->add_option("--machine", options->machine, "A preset (a100-g10), this-machine, or a file in the format vedette-machine-1")->capture_default_str();
  verb->add_option("--slow", options->directory, "The directory whose disk is this-machine's slow tier")->capture_default_str();
  verb->add_option("--seed", options->seed, "Of policies that search at random, and of the noise")->capture_default_str();
  verb->add_option("--noise", options->noise, "Every op takes up to this many percent more or less")->check(CLI::Range(0, 90));
  verb->add_flag("--json", options->json, "Print an array with an object a row");
  verb->add_option("-o,--output", options->page, "Write a page with the table and charts (HTML)");
  verb->callback([options] { compare(*options); });
}

}  // namespace vedette::cli
