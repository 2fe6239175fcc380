// vedette reproduce g10: the table of docs/g10.md, byte for byte.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "cli/g10_table.h"
#include "cli/lab.h"
#include "cli/reproduce.h"
#include "vedette/machine.h"

namespace vedette::cli {
namespace {

struct Place {  // of a cell's result
  std::size_t network = 0, system = 0;
};
constexpr std::size_t ours = g10_systems.size();  // the column after those of the table

// A cell for each system of each network, and one for ours on the trace as it is.
void add_cells(const Input& input, const G10Network& network, std::size_t n, const Machine& machine,
               std::vector<Cell>& cells, std::vector<Place>& places) {
  for (std::size_t s = 0; s <= ours; ++s) {
    const std::string policy(s == ours ? "vedette" : g10_systems[s].ours);
    const double line = g10_line_by_hand(network.model, network.batch, policy);
    const bool as_in_artifact = s != ours && g10_systems[s].as_in_artifact;
    cells.push_back(
        {.name = network.name() + "." + policy,
         .inputs = fmt::format("{} {} {} {} {}", input.sha256, format_machine(machine), policy, line, as_in_artifact),
         .compute = [path = input.path, machine, policy, line, as_in_artifact] {
           const Trace given = read_trace(path);
           return Json(g10_percent(as_in_artifact ? as_in_g10_artifact(given) : given, machine, policy, line));
         }});
    places.push_back({n, s});
  }
}

std::string csv_of(const std::vector<G10Network>& networks) {
  std::string csv = csv_line({"network", "system", "policy", "percent_of_ideal", "published_percent_of_ideal"});
  const auto words = [](double percent) {
    return percent == g10_unsupported ? std::string() : fmt::format("{:.4f}", percent);
  };
  for (const G10Network& network : networks) {
    for (std::size_t s = 0; s < g10_systems.size(); ++s)
      csv += csv_line({network.name(), std::string(g10_systems[s].title), std::string(g10_systems[s].ours),
                       words(network.cells[s].ours), words(network.cells[s].theirs)});
    csv += csv_line({network.name(), "vedette", "vedette", words(network.vedette), ""});
  }
  return csv;
}

// Of the networks that all systems run: a mean over others would compare different sets.
std::vector<std::vector<std::string>> means_of(const std::vector<G10Network>& networks) {
  std::vector<std::vector<double>> found(ours + 1), published(ours);
  for (const G10Network& network : networks) {
    const bool all_run = std::all_of(network.cells.begin(), network.cells.end(),
                                     [](const G10Cell& cell) { return cell.ours > 0 && cell.theirs > 0; });
    if (!all_run || network.vedette <= 0) continue;
    for (std::size_t s = 0; s < ours; ++s) {
      found[s].push_back(network.cells[s].ours);
      published[s].push_back(network.cells[s].theirs);
    }
    found[ours].push_back(network.vedette);
  }
  std::vector<std::vector<std::string>> rows{{"system", "geometric mean", "published"}};
  for (std::size_t s = 0; s <= ours; ++s)
    rows.push_back({std::string(s == ours ? "vedette" : g10_systems[s].title),
                    fmt::format("{:.1f}", geometric_mean(found[s])),
                    s == ours ? "" : fmt::format("{:.1f}", geometric_mean(published[s]))});
  rows.push_back({fmt::format("of {} networks, which all run", found[0].size()), "", ""});
  return rows;
}

std::string chart_of(const std::vector<G10Network>& networks) {
  std::vector<std::string> series{"vedette"};
  for (const G10System& system : g10_systems) series.emplace_back(system.title);
  std::vector<BarGroup> groups;
  for (const G10Network& network : networks) {
    BarGroup group{.name = network.name(), .values = {network.vedette}, .published = {-1}};
    for (const G10Cell& cell : network.cells) {
      group.values.push_back(cell.ours);
      group.published.push_back(cell.theirs);
    }
    groups.push_back(std::move(group));
  }
  return bars_svg(series, groups, "percent of ideal by network and system; lines: published");
}

std::string body_of(const std::vector<G10Network>& networks, const std::string& svg) {
  std::vector<std::vector<std::string>> rows(1, {"network"});
  for (const G10System& system : g10_systems) rows[0].emplace_back(system.title);
  rows[0].emplace_back("vedette");
  std::uint32_t cells = 0, within = 0;
  for (const G10Network& network : networks) {
    std::vector<std::string> row{network.name()};
    for (const G10Cell& cell : network.cells) {
      row.push_back(g10_words(cell.ours) + " / " + g10_words(cell.theirs) + (g10_agree(cell, 5) ? "" : " *"));
      ++cells, within += g10_agree(cell, 5) ? 1 : 0;
    }
    row.push_back(g10_words(network.vedette));
    rows.push_back(std::move(row));
  }
  return fmt::format(
             "<p>Percent of ideal, ours / published (platformxlab/G10, its example_results); a star: more than 5 "
             "points apart. {} of {} cells are within 5 points. The lines in the chart are the published figures.</p>\n"
             "<div class=\"scroll\">",
             within, cells) +
         svg + html_table(rows) + html_table(means_of(networks)) + "</div>\n";
}

}  // namespace

Reproduced reproduce_g10(const ReproduceOptions& options) {
  const std::string folder = data_folder(options, {"traces/g10", "g10"});
  const std::string table = std::filesystem::path(folder).parent_path().string() + "/g10_published.csv";
  Reproduced made{.title = "G10's table, replayed"};
  made.inputs.push_back(read_input("g10_published.csv", table));
  std::vector<G10Network> networks = g10_published(made.inputs[0].text);
  const std::vector<std::string> wanted = split(options.only, ',');
  std::erase_if(networks, [&](const G10Network& each) {
    return !wanted.empty() && std::find(wanted.begin(), wanted.end(), each.name()) == wanted.end();
  });
  if (networks.empty()) throw malformed(table + " has no network of that name");
  const MachinePreset& preset = machine_presets().front();
  const Machine machine = preset.make();
  std::vector<Cell> cells;
  std::vector<Place> places;
  for (std::size_t n = 0; n < networks.size(); ++n) {
    made.inputs.push_back(read_input(networks[n].name() + ".json", folder + "/" + networks[n].name() + ".json"));
    add_cells(made.inputs.back(), networks[n], n, machine, cells, places);
  }
  const auto results = compute_cells(cells_folder(options), cells, options.threads, "reproduce", made.counts);
  for (std::size_t i = 0; i < results.size(); ++i) {
    G10Network& network = networks[places[i].network];
    (places[i].system == ours ? network.vedette : network.cells[places[i].system].ours) = results[i].get<double>();
  }
  made.text = g10_markdown(networks);
  const std::string svg = chart_of(networks);
  made.body = body_of(networks, svg);
  made.machines.emplace_back(preset.name, format_machine(machine, preset.name));
  made.files = {{"g10.md", made.text}, {"g10.csv", csv_of(networks)}, {"g10.svg", svg}};
  return made;
}

}  // namespace vedette::cli
