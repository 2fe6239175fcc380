// vedette reproduce policies: every policy on every trace at the same shares of each step's peak, geometric means over
// the traces, and published figures of systems beside ours.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "cli/html.h"
#include "cli/lab.h"
#include "cli/own_policy.h"
#include "cli/published.h"
#include "cli/reproduce.h"
#include "vedette/bound.h"
#include "vedette/machine.h"

namespace vedette::cli {
namespace {

struct Given {
  std::string name, path, sha256;
};

std::vector<Given> traces_of(const ReproduceOptions& options, Reproduced& made) {
  const std::string folder = data_folder(options, {"traces", "."});
  std::vector<Given> traces;
  for (const char* set : {"g10", "dtr", "."}) {
    const std::string within = folder + "/" + set;
    if (!std::filesystem::is_directory(within)) continue;
    for (const std::string& name : names_in(options, within, ".json")) {
      const Input input = read_input(name + ".json", within + "/" + name + ".json");
      if (!input.text.starts_with("{\"format\":\"vedette-trace-1\"") && !parse_trace(input.text)) continue;
      traces.push_back({.name = name, .path = input.path, .sha256 = input.sha256});
      made.inputs.push_back({.name = input.name, .path = input.path, .sha256 = input.sha256});
    }
  }
  if (traces.empty()) throw malformed(folder + " has no trace (.json) of that name");
  return traces;
}

Json played(const Given& given, const Machine& machine, double share, const std::string& policy, std::uint64_t seed) {
  const Trace trace = read_trace(given.path);
  Machine sized = machine;
  sized.tiers[0].capacity = {static_cast<std::uint64_t>(static_cast<double>(peak_bytes(trace).value) * share)};
  if (policy.empty()) {
    std::int64_t ideal = 0;
    for (const Op& op : trace.ops) ideal += op.time.value;
    const bool fits = largest_op_bytes(trace) <= sized.tiers[0].capacity;
    const double bound = fits ? static_cast<double>(lower_bound(trace, sized).value) : 0;
    return {{"percent", bound > 0 ? Json(100.0 * static_cast<double>(ideal) / bound) : Json()}, {"error", ""}};
  }
  const Row row = run_policy(trace, sized, policies_named(policy).front(), seed, {.seed = seed});
  Json made{{"percent", nullptr}, {"error", row.error}};
  if (!row.replayed) return made;
  made["percent"] = row.percent_of_ideal();
  made["step_ns"] = row.replayed->measured.time.value;
  made["stall_ns"] = row.replayed->measured.stall.value;
  made["bytes_in"] = row.replayed->bytes_in.value;
  made["bytes_out"] = row.replayed->bytes_out.value;
  made["recompute_ns"] = row.replayed->recompute.value;
  return made;
}

struct Asked {  // a cell, and where its result goes
  std::size_t trace = 0, column = 0;
  std::string policy;  // empty: the bound
};

std::string file_name(const Given& trace, const std::string& machine, double share, const std::string& policy) {
  std::string where = std::filesystem::path(machine).stem().string();
  return fmt::format("{}.{}.{:.1f}.{}", trace.name, where, 100 * share,
                     policy.empty() ? "bound" : std::filesystem::path(policy).stem().string());
}

Cell cell_of(const Given& trace, const std::string& machine_name, const Machine& machine, double share,
             const std::string& policy, std::uint64_t seed) {
  return {.name = file_name(trace, machine_name, share, policy),
          .inputs = fmt::format("{} {} {} {} {}", trace.sha256, format_machine(machine), share,
                                names_a_library(policy) ? read_input(policy, policy).sha256 : policy, seed),
          .compute = [=] { return played(trace, machine, share, policy, seed); }};
}

std::vector<double> shares_of(const ReproduceOptions& options) {
  std::vector<double> shares;
  for (const std::string& each : options.fast.empty() ? std::vector<std::string>{"20%,50%"} : options.fast) {
    for (const std::string& word : split(each, ',')) {
      char* end = nullptr;
      const double percent = std::strtod(word.c_str(), &end);
      if (end == word.c_str() || std::string_view(end) != "%" || !(percent > 0 && percent <= 1000))
        throw malformed("'" + word + "' is no share of the peak; write 20%");
      shares.push_back(percent / 100);
    }
  }
  return shares;
}

class Policies {
 public:
  Policies(const ReproduceOptions& options, Reproduced& made)
      : options_(options),
        made_(made),
        traces_(traces_of(options, made)),
        shares_(shares_of(options)),
        machine_(read_machine(options.machine, ".")) {
    for (const std::string& word : split(options.policies, ',')) {
      if (names_a_library(word)) {
        names_.push_back(word);
        made.inputs.push_back(read_input(std::filesystem::path(word).filename().string(), word));
        continue;
      }
      for (const PolicyEntry& entry : policies_named(word)) names_.emplace_back(entry.name);
    }
    add_machine(options.machine, machine_);
    for (std::size_t t = 0; t < traces_.size(); ++t) {
      for (std::size_t s = 0; s < shares_.size(); ++s) {
        add(t, s, options.machine, machine_, shares_[s], "");
        for (const std::string& name : names_) add(t, s, options.machine, machine_, shares_[s], name);
      }
    }
    own_ = cells_.size();
    for (std::size_t f = 0; f < published_figures.size(); ++f) add_published(f);
  }

  void compute() {
    results_ = compute_cells(cells_folder(options_), cells_, options_.threads, "reproduce", made_.counts);
    const auto means = mean_rows();
    const auto figures = published_rows();
    std::string csv = csv_line({"trace", "share_of_peak", "policy", "percent_of_ideal", "step_ns", "stall_ns",
                                "bytes_in", "bytes_out", "recompute_ns", "error"});
    for (std::size_t i = 0; i < own_; ++i) csv += csv_of(i);
    const std::string svg = chart();
    made_.text = markdown_table(means) + "\n" + markdown_table(figures);
    made_.files = {{"policies.csv", csv},
                   {"policies.svg", svg},
                   {"published.csv", csv_table(figures)},
                   {"policies.md", made_.text}};
    made_.body = fmt::format(
                     "<p>Percent of ideal (all memory fast) on {}, geometric means over the {} traces that a policy "
                     "runs; where it runs fewer than all, their number stands behind. The bound is proven: no plan is "
                     "above it.</p>\n<div class=\"scroll\">",
                     html_escaped(options_.machine), traces_.size()) +
                 svg + html_table(means) + "</div><h2>Published figures</h2>\n<div class=\"scroll\">" +
                 html_table(figures) + "</div>\n<h2>Each trace</h2>\n<div class=\"scroll\">" +
                 html_table(trace_rows()) + "</div>\n";
  }

 private:
  void add_machine(const std::string& name, const Machine& machine) {
    for (const auto& each : made_.machines) {
      if (each.first == name) return;
    }
    made_.machines.emplace_back(name, format_machine(machine, name));
  }
  void add(std::size_t trace, std::size_t column, const std::string& machine_name, const Machine& machine, double share,
           const std::string& policy) {
    const std::string file = file_name(traces_[trace], machine_name, share, policy);
    if (!index_.emplace(file, cells_.size()).second) return;  // a published figure may be asked for already
    cells_.push_back(cell_of(traces_[trace], machine_name, machine, share, policy, options_.seed));
    asked_.push_back({trace, column, policy});
  }
  void add_published(std::size_t f) {
    const PublishedFigure& figure = published_figures[f];
    const std::string machine_name = figure.machine_name();
    Machine machine = read_machine(std::string(figure.machine), ".");
    machine.can_reorder = figure.order;
    add_machine(machine_name, machine);
    for (std::size_t t = 0; t < traces_.size(); ++t)
      add(t, 0, machine_name, machine, figure.share, std::string(figure.policy));
  }

  // Of the traces that the policy runs.
  std::string mean(const std::string& machine, double share, const std::string& policy, double* value = nullptr) const {
    std::vector<double> found;
    for (const Given& trace : traces_) {
      const auto at = index_.find(file_name(trace, machine, share, policy));
      if (at != index_.end() && results_[at->second]["percent"].is_number())
        found.push_back(results_[at->second]["percent"].get<double>());
    }
    if (value != nullptr) *value = found.empty() ? -1 : geometric_mean(found);
    if (found.empty()) return "fails";
    return fmt::format("{:.1f}", geometric_mean(found)) +
           (found.size() == traces_.size() ? "" : fmt::format(" ({})", found.size()));
  }

  std::vector<std::vector<std::string>> mean_rows() const {
    std::vector<std::vector<std::string>> rows{{"policy"}};
    for (const double share : shares_) rows[0].push_back(fmt::format("{:.0f} % of the peak", 100 * share));
    const auto row_of = [&](const std::string& policy, const std::string& title) {
      std::vector<std::string> row{title};
      for (const double share : shares_) row.push_back(mean(options_.machine, share, policy));
      rows.push_back(std::move(row));
    };
    for (const std::string& name : names_) row_of(name, marked(policies_named(name).front()));
    row_of("", "bound (proven)");
    return rows;
  }
  // "fails" has no unit.
  static std::string with_percent(std::string mean) { return mean == "fails" ? mean : mean + " %"; }
  std::vector<std::vector<std::string>> published_rows() const {
    std::vector<std::vector<std::string>> rows{
        {"system", "published", "source", "ours (geometric mean)", "ours is", "compared"}};
    for (const PublishedFigure& figure : published_figures)
      rows.push_back(
          {std::string(figure.system), std::string(figure.says), std::string(figure.source),
           with_percent(mean(figure.machine_name(), figure.share, std::string(figure.policy))),
           fmt::format("{} at {:.0f} % of the peak on {}", figure.policy, 100 * figure.share, figure.machine_name()),
           figure.apart.empty() ? "yes" : "no: " + std::string(figure.apart)});
    return rows;
  }
  std::vector<std::vector<std::string>> trace_rows() const {
    std::vector<std::vector<std::string>> rows{{"trace", "of peak", "policy", "% of ideal"}};
    for (std::size_t i = 0; i < own_; ++i) {
      const Json& percent = results_[i]["percent"];
      rows.push_back({traces_[asked_[i].trace].name, fmt::format("{:.0f} %", 100 * shares_[asked_[i].column]),
                      asked_[i].policy.empty() ? "bound" : asked_[i].policy,
                      percent.is_number() ? fmt::format("{:.2f}", percent.get<double>())
                                          : results_[i]["error"].get<std::string>()});
    }
    return rows;
  }
  std::string csv_of(std::size_t i) const {
    const Json& got = results_[i];
    const auto number = [&](const char* key) {
      return got.contains(key) && got[key].is_number() ? got[key].dump() : std::string();
    };
    return csv_line({traces_[asked_[i].trace].name, fmt::format("{:.4f}", shares_[asked_[i].column]),
                     asked_[i].policy.empty() ? "bound" : asked_[i].policy, number("percent"), number("step_ns"),
                     number("stall_ns"), number("bytes_in"), number("bytes_out"), number("recompute_ns"),
                     got["error"].get<std::string>()});
  }
  std::string chart() const {
    std::vector<std::string> series;
    for (const double share : shares_) series.push_back(fmt::format("{:.0f} % of the peak", 100 * share));
    std::vector<BarGroup> groups;
    for (const std::string& name : names_) {
      BarGroup group{.name = name};
      for (const double share : shares_) mean(options_.machine, share, name, &group.values.emplace_back());
      groups.push_back(std::move(group));
    }
    return bars_svg(series, groups, "percent of ideal by policy, geometric means over the traces");
  }
  const ReproduceOptions& options_;
  Reproduced& made_;
  std::vector<Given> traces_;
  std::vector<double> shares_;
  Machine machine_;
  std::vector<std::string> names_;
  std::vector<Cell> cells_;
  std::vector<Asked> asked_;
  std::map<std::string, std::size_t> index_;
  std::size_t own_ = 0;  // cells before those of published figures
  std::vector<Json> results_;
};

}  // namespace

Reproduced reproduce_policies(const ReproduceOptions& options) {
  Reproduced made{.title = "Policies on the same steps"};
  Policies(options, made).compute();
  return made;
}

}  // namespace vedette::cli
