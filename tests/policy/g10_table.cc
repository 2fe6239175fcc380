// G10's published table, replayed: how many of its cells come out as its artifact says. The counts are those that were
// reached (docs/g10.md); a change of a policy or of the simulator that loses cells fails here. Prints the table, whose
// rows are those of docs/g10.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>

#include "policy/g10_of_artifact.h"
#include "support/traces.h"
#include "vedette/machine.h"
#include "vedette/policy.h"
#include "vedette/replay.h"

namespace vedette {
namespace {

struct System {
  const char *published, *ours;
  bool as_in_artifact;  // FlashNeuron keeps room for the largest workspace there instead
};
constexpr std::array systems{System{"lru", "unified-memory", true}, System{"FlashNeuron", "flashneuron+", false},
                             System{"deepUM", "deepum+", true}, System{"prefetch_lru", "g10+", true}};
constexpr double unsupported = -1;

struct Cell {
  double theirs = unsupported, ours = unsupported;  // percent of ideal
};
using Network = std::array<Cell, systems.size()>;

// By model and batch size; the columns are model, batch, system, percent_of_ideal, ...
std::map<std::pair<std::string, int>, Network> published() {
  std::map<std::pair<std::string, int>, Network> table;
  std::ifstream file(std::filesystem::path(testing::data_folder()) / "traces" / "g10_published.csv");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::array<std::string, 4> columns;
    for (std::string& column : columns) std::getline(words, column, ',');
    for (std::size_t s = 0; s < systems.size(); ++s) {
      if (columns[2] != systems[s].published) continue;
      Cell& cell = table[{columns[0], std::stoi(columns[1])}][s];
      cell.theirs = columns[3].empty() ? unsupported : std::stod(columns[3]);
    }
  }
  return table;
}

// A parameter that the artifact's authors set by hand for one network and batch size, so an input of those runs. In
// src/ast.cc, transformer_parse, `if (borden>200 && batch_size ==512 && SSD_PCIe_bandwidth_GBps < 6.3) loosen_parameter
// = 1.394;` where only BERT has a borden over 200. Its scheduler takes periods until memory is below 1.394 x 0.99 of
// the GPU's, so that it leaves more to the driver.
struct SetByHand {
  const char* model;
  int batch;
  double loosened;
};
constexpr SetByHand set_by_hand{"bert_base", 512, 1.394};

double line_by_hand(const std::string& model, int batch, const std::string& system) {
  return model == set_by_hand.model && batch == set_by_hand.batch && system == "g10+" ? set_by_hand.loosened : 1;
}

double percent(const Trace& trace, const Machine& machine, const char* name, double loosened = 1) {
  const auto policy = loosened == 1 ? make_policy(name, 1) : make_g10_of_artifact_with_line(loosened);
  const auto replayed = replay(trace, machine, *policy, {});
  if (!replayed) return unsupported;
  return 100.0 * static_cast<double>(replayed->ideal.value) / static_cast<double>(replayed->measured.time.value);
}

bool agree(const Cell& cell, double points) {
  if (cell.theirs == unsupported || cell.ours == unsupported) return cell.theirs == cell.ours;
  return std::abs(cell.theirs - cell.ours) <= points;
}

// Ties within half a point may come out either way.
bool same_order(const Network& network) {
  for (const Cell& a : network) {
    for (const Cell& b : network) {
      if (a.theirs > b.theirs + 0.5 && a.ours < b.ours - 0.5) return false;
    }
  }
  return true;
}

std::string words(double value) {
  char text[16];
  std::snprintf(text, sizeof text, "%.1f", value);
  return value == unsupported ? "fails" : text;
}

// The trace as the artifact has it: workspaces have addresses. A tensor that no op writes, and that is no parameter, is
// born at its first use; the given traces keep it through the step, as their README says.
Trace as_in_artifact(const Trace& given) {
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

// docs/g10.md without the marks that send its reader to a note.
std::string page_without_marks() {
  std::string page = testing::read_text(VEDETTE_SOURCE_DIR "/docs/g10.md");
  for (const std::string mark : {" \xE2\x80\xA0", " *"}) {
    for (std::size_t at = page.find(mark); at != std::string::npos; at = page.find(mark)) page.erase(at, mark.size());
  }
  return page;
}

struct Counts {
  int cells = 0, within_5 = 0, within_15 = 0, networks = 0, in_order = 0;
};

Counts count(const std::vector<std::string>& models) {
  const Machine machine = machine_presets().front().make();
  const std::string page = page_without_marks();
  Counts counts;
  for (auto& [name, network] : published()) {
    const auto file = std::filesystem::path(testing::data_folder()) / "traces" / "g10" /
                      (name.first + "-" + std::to_string(name.second) + ".json");
    if (std::find(models.begin(), models.end(), name.first) == models.end() || !std::filesystem::exists(file)) continue;
    const Trace given = testing::load_trace(file), trace = as_in_artifact(given);
    std::printf("| %s-%d ", name.first.c_str(), name.second);
    Network found = network;
    std::string row = "| ";
    row.append(name.first).append("-").append(std::to_string(name.second)).append(" |");
    for (std::size_t s = 0; s < systems.size(); ++s) {
      const double by_hand = line_by_hand(name.first, name.second, systems[s].ours);
      found[s].ours = percent(systems[s].as_in_artifact ? trace : given, machine, systems[s].ours, by_hand);
      if (by_hand != 1)
        std::printf("| (with the line as elsewhere: %s) ", words(percent(trace, machine, systems[s].ours)).c_str());
      std::printf("| %s / %s%s ", words(found[s].ours).c_str(), words(found[s].theirs).c_str(),
                  agree(found[s], 5)    ? ""
                  : agree(found[s], 15) ? " *"
                                        : " **");
      row.append(" ").append(words(found[s].ours)).append(" / ").append(words(found[s].theirs)).append(" |");
      ++counts.cells;
      counts.within_5 += agree(found[s], 5);
      counts.within_15 += agree(found[s], 15);
    }
    std::printf("|%s\n", same_order(found) ? "" : " order");
    EXPECT_NE(page.find(row), std::string::npos) << "docs/g10.md has another row than this: " << row;
    std::fflush(stdout);
    ++counts.networks;
    counts.in_order += same_order(found);
  }
  std::printf("%d cells: %d within 5 points, %d within 15; %d of %d networks in order\n", counts.cells, counts.within_5,
              counts.within_15, counts.in_order, counts.networks);
  return counts;
}

TEST(G10Table, ComesOutAsPublishedInAsManyCellsAsTheDocsSay) {
  const Counts counts = count({"bert_base", "vit", "inceptionv3"});
  if (counts.cells == 0) GTEST_SKIP() << "no traces/g10 in VEDETTE_DATA, the folder '" << testing::data_folder() << "'";
  EXPECT_EQ(counts.cells, 64);
  EXPECT_GE(counts.within_5, 60);
  EXPECT_GE(counts.within_15, 64);
  EXPECT_GE(counts.in_order, 16);
}

// What was not looked at when rules were chosen: other sizes of host memory, and batch sizes that the table lacks. From
// the artifact's example_results/sensitivity_cpumem_combined, in cycles at 1.2 GHz.
struct HeldOut {
  const char* model;
  int batch;
  std::uint64_t host_gib;
  const char* system;
  std::int64_t cycles;
};
constexpr HeldOut held_out[] = {
    {"bert_base", 256, 0, "g10+", 12341928800},
    {"bert_base", 256, 16, "g10+", 8773229325},
    {"bert_base", 256, 32, "g10+", 8773229325},
    {"bert_base", 256, 64, "g10+", 8773229325},
    {"bert_base", 384, 0, "g10+", 31123000008},
    {"bert_base", 384, 16, "g10+", 20347585184},
    {"bert_base", 384, 32, "g10+", 13858250190},
    {"bert_base", 384, 64, "g10+", 13858250190},
    {"bert_base", 384, 128, "g10+", 13858250190},
    {"bert_base", 512, 0, "g10+", 51286017824},
    {"bert_base", 512, 16, "g10+", 38067752803},
    {"bert_base", 512, 32, "g10+", 28773806207},
    {"bert_base", 512, 64, "g10+", 17607178175},
    {"bert_base", 640, 0, "g10+", 78027898291},
    {"bert_base", 640, 16, "g10+", 63000911338},
    {"bert_base", 640, 32, "g10+", 46834889971},
    {"bert_base", 640, 64, "g10+", 29637263962},
    {"bert_base", 640, 128, "g10+", 21946607476},
    {"vit", 768, 0, "g10+", 3483108604},
    {"vit", 768, 16, "g10+", 3483108604},
    {"vit", 768, 32, "g10+", 3483108604},
    {"vit", 768, 64, "g10+", 3483108604},
    {"vit", 1024, 0, "g10+", 6362807714},
    {"vit", 1024, 16, "g10+", 4952214530},
    {"vit", 1024, 32, "g10+", 5321021687},
    {"vit", 1024, 64, "g10+", 5321021687},
    {"vit", 1280, 0, "g10+", 17949831696},
    {"vit", 1280, 16, "g10+", 5949926570},
    {"vit", 1280, 32, "g10+", 6647685439},
    {"vit", 1280, 64, "g10+", 6647685439},
    {"vit", 1536, 0, "g10+", 26280758428},
    {"vit", 1536, 16, "g10+", 14744299592},
    {"vit", 1536, 32, "g10+", 8500323906},
    {"vit", 1536, 64, "g10+", 8500323906},
    {"vit", 1536, 128, "g10+", 8500323906},
    {"inceptionv3", 512, 0, "g10+", 64549428101},
    {"inceptionv3", 512, 16, "g10+", 64660726103},
    {"inceptionv3", 512, 32, "g10+", 64660726103},
    {"inceptionv3", 512, 64, "g10+", 64660726103},
    {"inceptionv3", 1024, 0, "g10+", 79712808677},
    {"inceptionv3", 1024, 16, "g10+", 71534593453},
    {"inceptionv3", 1024, 32, "g10+", 71623659498},
    {"inceptionv3", 1024, 64, "g10+", 71623659498},
    {"inceptionv3", 1280, 0, "g10+", 107696634727},
    {"inceptionv3", 1280, 16, "g10+", 87565938039},
    {"inceptionv3", 1280, 32, "g10+", 73019761346},
    {"inceptionv3", 1280, 64, "g10+", 73042083515},
    {"inceptionv3", 1536, 0, "g10+", 137788384845},
    {"inceptionv3", 1536, 16, "g10+", 117824519462},
    {"inceptionv3", 1536, 32, "g10+", 84400011796},
    {"inceptionv3", 1536, 64, "g10+", 73303772339},
    {"vit", 1024, 0, "deepum+", 29011207388},
    {"vit", 1024, 16, "deepum+", 18499758842},
    {"vit", 1024, 32, "deepum+", 7359374215},
    {"vit", 1024, 64, "deepum+", 6937327671},
    {"inceptionv3", 1280, 0, "deepum+", 156902635094},
    {"inceptionv3", 1280, 16, "deepum+", 136558921326},
    {"inceptionv3", 1280, 32, "deepum+", 120115422094},
    {"inceptionv3", 1280, 64, "deepum+", 100480771312},
};

TEST(G10Table, ComesOutOnOtherMachinesToo) {
  int cells = 0, within_5 = 0, within_15 = 0;
  for (const HeldOut& each : held_out) {
    const auto file = std::filesystem::path(testing::data_folder()) / "traces" / "g10" /
                      (std::string(each.model) + "-" + std::to_string(each.batch) + ".json");
    if (!std::filesystem::exists(file)) continue;
    const Trace trace = as_in_artifact(testing::load_trace(file));
    Machine machine = machine_presets().front().make();
    machine.tiers[1].capacity = {each.host_gib << 30};
    std::int64_t ideal = 0;
    for (const Op& op : trace.ops) ideal += op.time.value;
    const double ours = percent(trace, machine, each.system, line_by_hand(each.model, each.batch, each.system));
    const Cell cell{.theirs = 100.0 * static_cast<double>(ideal) * 1.2 / static_cast<double>(each.cycles),
                    .ours = ours};
    std::printf("| %s-%d | %d GiB | %s | %s / %s%s |\n", each.model, each.batch, static_cast<int>(each.host_gib),
                each.system, words(cell.ours).c_str(), words(cell.theirs).c_str(),
                agree(cell, 5)    ? ""
                : agree(cell, 15) ? " *"
                                  : " **");
    std::fflush(stdout);
    ++cells, within_5 += agree(cell, 5), within_15 += agree(cell, 15);
  }
  if (cells == 0) GTEST_SKIP() << "no traces/g10 in VEDETTE_DATA, the folder '" << testing::data_folder() << "'";
  std::printf("%d cells held out: %d within 5 points, %d within 15\n", cells, within_5, within_15);
  EXPECT_GE(within_5, 57);
  EXPECT_GE(within_15, 59);
}

}  // namespace
}  // namespace vedette
