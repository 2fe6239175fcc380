// vedette compare TRACE...: every policy on the same steps and the same machine, a row each, beside a bound that no
// plan can pass.
#include <fmt/core.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/lab.h"
#include "cli/output_file.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "profiler/origin.h"
#include "vedette/bound.h"

namespace vedette::cli {
namespace {

using Json = nlohmann::ordered_json;

struct CompareOptions {
  std::vector<std::string> traces, fast;
  std::string policies = "all", machine, directory = ".", page, timeline;
  std::uint64_t seed = 1;
  std::uint32_t noise = 0;
  bool json = false, reorder = false;
};

// With --reorder a policy that looks for orders of ops has two rows: as traced, and with this behind its name.
constexpr std::string_view in_another_order = "+order";

std::vector<PolicyEntry> entries_of(const CompareOptions& options) {
  static std::deque<std::string> names;  // entries name what outlives them
  std::vector<PolicyEntry> entries;
  for (const PolicyEntry& entry : policies_named(options.policies)) {
    entries.push_back(entry);
    if (!options.reorder || !entry.orders) continue;
    entries.push_back(entry);
    entries.back().name = names.emplace_back(std::string(entry.name) + std::string(in_another_order));
  }
  return entries;
}

Machine machine_of(Machine machine, const PolicyEntry& entry) {
  machine.can_reorder = machine.can_reorder || entry.name.ends_with(in_another_order);
  return machine;
}

Json json_of(const Row& row) {
  Json made{{"trace", row.trace},
            {"fast_bytes", row.fast.value},
            {"fast_fraction", row.fraction},
            {"policy", row.policy},
            {"step_ns", nullptr},
            {"ideal_ns", row.ideal.value},
            {"percent_of_ideal", nullptr},
            {"lower_bound_ns", row.lower_bound.value},
            {"bounded", nullptr},
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
  made["bounded"] = !row.paged() && !row.policy.ends_with(in_another_order);
  made["stall_ns"] = row.replayed->measured.stall.value;
  made["bytes_in"] = row.replayed->bytes_in.value;
  made["bytes_out"] = row.replayed->bytes_out.value;
  made["recompute_ns"] = row.replayed->recompute.value;
  made["peak_bytes"] = row.replayed->peak.value;
  return made;
}

void print_heading(const Row& row) {
  print("\n{}: fast memory {} ({:.1f} % of peak), ideal {:.1f} ms, no plan above {:.1f} % of it\n", row.trace,
        readable(row.fast), 100 * row.fraction, ms(row.ideal),
        row.lower_bound.value == 0
            ? 100.0
            : 100.0 * static_cast<double>(row.ideal.value) / static_cast<double>(row.lower_bound.value));
  print("  {:<16} {:>8} {:>11} {:>12} {:>11} {:>11} {:>11} {:>10}\n", "policy", "% ideal", "stall ms", "recompute ms",
        "in", "out", "peak", "plan ms");
}

void print_row(const Row& row, const PolicyEntry& entry) {
  if (!row.replayed) {
    print("  {:<16} {}\n", marked(entry, row), row.error);
    return;
  }
  const Replayed& got = *row.replayed;
  print("  {:<16} {:>8.2f} {:>11.1f} {:>12.1f} {:>11} {:>11} {:>11} {:>10.1f}\n", marked(entry, row),
        row.percent_of_ideal(), ms(got.measured.stall), ms(got.recompute), readable(got.bytes_in),
        readable(got.bytes_out), readable(got.peak), ms(row.plan_time));
}

void print_marks(const std::vector<Row>& rows, const std::vector<PolicyEntry>& entries) {
  const bool partial =
      std::any_of(entries.begin(), entries.end(), [](const PolicyEntry& each) { return !each.partial.empty(); });
  const bool paged = std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.paged(); });
  const bool reordered =
      std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.policy.ends_with(in_another_order); });
  if (partial || paged || reordered) print("\n");
  if (partial) print("* {} (vedette plan --list says what)\n", what_partial_means);
  if (paged) print("~ {}\n", what_paged_means);
  if (reordered)
    print("{} ops run in an order that the policy found; no plan of the traced order is above the bound\n",
          in_another_order);
}

struct Cell {  // a size of one trace, its rows in the order of the policies
  Trace trace;
  Machine machine;
  std::size_t first_row = 0;
};

// The smallest size at which two policies run, and the two: those named, or ours (else the best) and the best of the
// other systems.
std::optional<Timeline> timeline_of(const std::vector<Cell>& cells, const std::vector<Row>& rows,
                                    const std::vector<PolicyEntry>& entries, const CompareOptions& options) {
  const auto wanted = split(options.timeline, ',');
  for (const Cell& cell : cells) {
    std::vector<const PolicyEntry*> ran;
    for (std::size_t e = 0; e < entries.size(); ++e) {
      const bool counts =
          wanted.empty() ? !entries[e].bound : std::count(wanted.begin(), wanted.end(), entries[e].name) > 0;
      if (counts && rows[cell.first_row + e].replayed) ran.push_back(&entries[e]);
    }
    const auto row_of = [&](const PolicyEntry* entry) -> const Row& {
      return rows[cell.first_row + static_cast<std::size_t>(entry - entries.data())];
    };
    std::stable_sort(ran.begin(), ran.end(), [&](const PolicyEntry* a, const PolicyEntry* b) {
      const bool ours = a->name == "vedette", theirs = b->name == "vedette";
      return ours != theirs ? ours : row_of(a).percent_of_ideal() > row_of(b).percent_of_ideal();
    });
    if (ran.size() < 2) continue;
    std::vector<Row> drawn;
    for (std::size_t k = 0; k < 2; ++k)
      drawn.push_back(run_policy(cell.trace, machine_of(cell.machine, *ran[k]), *ran[k], options.seed,
                                 {.noise_percent = options.noise, .seed = options.seed, .timeline = true}));
    if (!drawn[0].replayed || !drawn[1].replayed) continue;
    return Timeline{
        .trace = cell.trace.name,
        .svg = timeline_svg({{drawn[0].policy, &*drawn[0].replayed}, {drawn[1].policy, &*drawn[1].replayed}},
                            cell.machine),
        .caption = fmt::format("One step under {} and {}, with {} of fast memory ({:.0f} % of the peak).",
                               drawn[0].policy, drawn[1].policy, readable(drawn[0].fast), 100 * drawn[0].fraction)};
  }
  return std::nullopt;
}

// All sizes of one trace, smallest first. Prints rows as they come, unless JSON is wanted.
std::vector<Cell> compare_trace(const Trace& trace, const Machine& machine, const std::vector<Bytes>& sizes,
                                const std::vector<PolicyEntry>& entries, const CompareOptions& options,
                                std::vector<Row>& rows) {
  std::vector<Cell> cells;
  Progress progress("compare");
  for (const Bytes size : sizes) {
    Machine sized = machine;
    sized.tiers[0].capacity = size;
    progress.say("bounds " + trace.name + " in " + readable(size));
    const Nanoseconds bound = lower_bound(trace, sized);
    cells.push_back({.trace = trace, .machine = sized, .first_row = rows.size()});
    for (const PolicyEntry& entry : entries) {
      progress.say(fmt::format("runs {} on {} in {}", entry.name, trace.name, readable(size)));
      rows.push_back(run_policy(trace, machine_of(sized, entry), entry, options.seed,
                                {.noise_percent = options.noise, .seed = options.seed}));
      rows.back().lower_bound = bound;
      if (options.json) continue;
      progress.clear();
      if (entry.name == entries.front().name) print_heading(rows.back());
      print_row(rows.back(), entry);
      std::fflush(stdout);
    }
    const std::span of_size(rows.data() + cells.back().first_row, entries.size());
    if (!options.json && all_alike(of_size))
      print(
          "  all policies that run here are within 1 % of each other: this much fast memory leaves nothing to "
          "choose\n");
  }
  std::stable_sort(cells.begin(), cells.end(), [](const Cell& a, const Cell& b) {
    return a.machine.tiers[0].capacity < b.machine.tiers[0].capacity;
  });
  return cells;
}

std::vector<Bytes> sizes_of(const CompareOptions& options, const Trace& trace, const Machine& machine) {
  std::vector<Bytes> sizes;
  for (const std::string& each : options.fast) {
    for (const std::string& size : split(each, ',')) sizes.push_back(read_size(size, trace));
  }
  if (sizes.empty() && !options.fast.empty()) read_size("", trace);  // says what a size is
  if (sizes.empty()) sizes.push_back(machine.tiers[0].capacity);
  return sizes;
}

void compare(const CompareOptions& options, std::vector<Row>& rows) {
  const std::vector<PolicyEntry> entries = entries_of(options);
  if (const auto two = split(options.timeline, ','); !two.empty()) {
    const auto runs = [&](const std::string& name) {
      return std::any_of(entries.begin(), entries.end(), [&](const PolicyEntry& each) { return each.name == name; });
    };
    if (two.size() != 2 || two[0] == two[1] || !runs(two[0]) || !runs(two[1]))
      throw malformed("--timeline draws two of the policies that are compared; name them as in vedette,sentinel");
  }
  std::vector<Trace> traces;
  std::vector<Chosen> machines;  // of each trace
  for (const std::string& file : options.traces) {
    traces.push_back(read_trace(file));
    print_assumptions(traces.back(), options.json);
    machines.push_back(machine_for(file, options.machine, options.directory));
  }
  // errors are told before hours of work, not after
  for (std::size_t t = 0; t < traces.size(); ++t) sizes_of(options, traces[t], machines[t].machine);
  std::vector<std::string> inputs = split(options.policies, ',');
  inputs.push_back(options.machine);
  inputs.insert(inputs.end(), options.traces.begin(), options.traces.end());
  auto page = optional_output(options.page, inputs);
  std::vector<Timeline> timelines;
  std::vector<Chosen> different;
  for (std::size_t t = 0; t < traces.size(); ++t) {
    const Machine& machine = machines[t].machine;
    const bool known = std::any_of(different.begin(), different.end(), [&](const Chosen& each) {
      return tiers_and_links(each.machine) == tiers_and_links(machine);
    });
    if (!known) different.push_back(machines[t]);
    if (!known && !options.json) print_machine(machines[t]);
    const std::vector<Cell> cells =
        compare_trace(traces[t], machine, sizes_of(options, traces[t], machine), entries, options, rows);
    if (!page) continue;
    if (auto drawn = timeline_of(cells, rows, entries, options)) timelines.push_back(*std::move(drawn));
  }
  if (options.json) {
    Json all = Json::array();
    for (const Row& row : rows) all.push_back(json_of(row));
    print_data(all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  } else {
    print_marks(rows, entries);
  }
  if (!page) return;
  page->stream() << compare_page(rows, entries, timelines,
                                 {.command = command_of_this_process(),
                                  .machines = different,
                                  .seed = options.seed,
                                  .noise_percent = options.noise});
  page->finish();
}

// A row that ended in an error is no answer, nor is a table in which nothing ran: the status says so when everything is
// written. That one policy of several needs more memory is an answer.
void compare_all(const CompareOptions& options) {
  std::vector<Row> rows;
  compare(options, rows);
  const auto failed = [](const Row& row) { return row.failed; };
  const bool none_ran = std::none_of(rows.begin(), rows.end(), [](const Row& row) { return row.replayed.has_value(); });
  const auto first = none_ran ? rows.begin() : std::find_if(rows.begin(), rows.end(), failed);
  if (first == rows.end()) return;
  std::fflush(stdout);
  const auto count =
      none_ran ? static_cast<std::ptrdiff_t>(rows.size()) : std::count_if(rows.begin(), rows.end(), failed);
  throw Failure({none_ran ? Cause::infeasible : Cause::malformed_input,
                 fmt::format("{} of {} rows failed; the first: {} on {} with {}: {}", count, rows.size(), first->policy,
                             first->trace, readable(first->fast), first->error)});
}

}  // namespace

void add_compare(CLI::App& app) {
  auto* verb = app.add_subcommand(
      "compare", "Replays steps under every policy: percent of ideal, stalls, bytes, beside a proven bound");
  const auto options = std::make_shared<CompareOptions>();
  verb->add_option("trace", options->traces,
                   "files in the format vedette-trace-1, recordings, execution traces or memory snapshots of PyTorch")
      ->required();
  verb->add_option(
          "--fast-memory", options->fast,
          "sizes of the fastest tier: 20% of the trace's peak, 8GiB; several with commas (default: the machine's)")
      ->allow_extra_args(false);
  verb->add_option("--policy", options->policies,
                   "all, names, or files of policies of your own (docs/own-policy.md), with commas")
      ->capture_default_str();
  verb->add_option("--machine", options->machine, machine_words());
  verb->add_option("--slow", options->directory, "the directory whose disk is this-machine's slow tier")
      ->capture_default_str();
  verb->add_option("--seed", options->seed, "of policies that search at random, and of the noise")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 62));
  verb->add_option("--noise", options->noise, "every op takes up to this many percent more or less")
      ->check(CLI::Range(0, 90));
  verb->add_flag("--reorder", options->reorder,
                 "a second row of vedette and swapadvisor, whose ops run in the order that they find best: what a "
                 "compiler would gain; the bound is of the traced order");
  verb->add_flag("--json", options->json, "print an array with an object a row");
  verb->add_option("-o,--output", options->page, "write a page with the table and charts (HTML)");
  verb->add_option("--timeline", options->timeline,
                   "the two policies whose step the page draws (default: vedette and the best of the others)");
  verb->add_option("--fast", options->fast)->allow_extra_args(false)->group("");  // earlier words
  verb->add_option("--policies", options->policies)->group("");
  verb->callback([options] { compare_all(*options); });
}

}  // namespace vedette::cli
