#include "cli/g10_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "policy/g10/of_artifact.h"
#include "vedette/policy.h"
#include "vedette/replay.h"

namespace vedette::cli {
namespace {

constexpr std::array<std::string_view, 3> models{"bert_base", "vit", "inceptionv3"};

struct SetByHand {
  std::string_view model;
  int batch;
  double loosened;
};
constexpr SetByHand set_by_hand{"bert_base", 512, 1.394};

}  // namespace

std::vector<G10Network> g10_published(const std::string& csv) {
  std::map<std::pair<std::ptrdiff_t, int>, G10Network> table;  // by place of the model, and batch size
  std::istringstream file(csv);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::array<std::string, 4> columns;
    for (std::string& column : columns) std::getline(words, column, ',');
    const auto model = std::find(models.begin(), models.end(), columns[0]);
    if (model == models.end()) continue;
    for (std::size_t s = 0; s < g10_systems.size(); ++s) {
      if (columns[2] != g10_systems[s].published) continue;
      const int batch = std::stoi(columns[1]);
      G10Network& network = table[{model - models.begin(), batch}];
      network.model = columns[0];
      network.batch = batch;
      network.cells[s].theirs = columns[3].empty() ? g10_unsupported : std::stod(columns[3]);
    }
  }
  std::vector<G10Network> networks;
  for (auto& [place, network] : table) networks.push_back(std::move(network));
  return networks;
}

Trace as_in_g10_artifact(const Trace& given) {
  Trace trace = workspaces_as_tensors(given);
  std::vector<char> written(trace.tensors.size());
  for (const Op& op : trace.ops) {
    for (const TensorIndex t : op.writes) written[t.value] = 1;
  }
  for (Op& op : trace.ops) {
    const auto first_use = [&](TensorIndex t) {
      Tensor& tensor = trace.tensors[t.value];
      if (written[t.value] != 0 || tensor.kind == TensorKind::weight || tensor.name.starts_with("param")) return false;
      written[t.value] = 1;
      tensor.persistent = false;
      op.writes.push_back(t);
      return true;
    };
    std::erase_if(op.reads, first_use);
    std::sort(op.writes.begin(), op.writes.end());
  }
  return trace;
}

double g10_line_by_hand(std::string_view model, int batch, std::string_view system) {
  return model == set_by_hand.model && batch == set_by_hand.batch && system == "g10+" ? set_by_hand.loosened : 1;
}

double g10_percent(const Trace& trace, const Machine& machine, std::string_view name, double loosened) {
  const auto policy = loosened == 1 ? make_policy(name, 1) : make_g10_of_artifact_with_line(loosened);
  const auto replayed = replay(trace, machine, *policy, {});
  if (!replayed) return g10_unsupported;
  return 100.0 * static_cast<double>(replayed->ideal.value) / static_cast<double>(replayed->measured.time.value);
}

bool g10_agree(const G10Cell& cell, double points) {
  if (cell.theirs == g10_unsupported || cell.ours == g10_unsupported) return cell.theirs == cell.ours;
  return std::abs(cell.theirs - cell.ours) <= points;
}

bool g10_same_order(const G10Network& network) {
  for (const G10Cell& a : network.cells) {
    for (const G10Cell& b : network.cells) {
      if (a.theirs > b.theirs + 0.5 && a.ours < b.ours - 0.5) return false;
    }
  }
  return true;
}

std::string g10_words(double percent) { return percent == g10_unsupported ? "fails" : fmt::format("{:.1f}", percent); }

std::string g10_row(const G10Network& network) {
  std::string row = "| " + network.name() + " |";
  for (std::size_t s = 0; s < g10_systems.size(); ++s) {
    const G10Cell& cell = network.cells[s];
    const bool by_hand = g10_line_by_hand(network.model, network.batch, g10_systems[s].ours) != 1;
    row += fmt::format(" {} / {}{}{} |", g10_words(cell.ours), g10_words(cell.theirs), g10_agree(cell, 5) ? "" : " *",
                       by_hand ? " \xE2\x80\xA0" : "");
  }
  return row + " " + g10_words(network.vedette) + " |";
}

std::string g10_markdown(std::span<const G10Network> networks) {
  std::string table = "| network |", line = "|---|";
  for (const G10System& system : g10_systems) table.append(" ").append(system.title).append(" |"), line += "---|";
  table += " vedette |\n" + line + "---|\n";
  for (const G10Network& network : networks) table += g10_row(network) + "\n";
  return table;
}

}  // namespace vedette::cli
