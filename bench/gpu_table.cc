// How fast does a model train in less GPU memory: with a guard that moves tensors, with one that
// recomputes them too ("again"), with saved tensors in pinned memory, with checkpointing?
//
//   build/bench/gpu_table --json gpu.json                                   # on a GPU: a decoder of 1.3 billion
//   scripts/with_simulated_gpu build/bench/gpu_table --small --rounds 1     # a rehearsal; its times say nothing of a
//   GPU
//
// Each cell is a process of its own; cells alternate, --rounds times. The plain cell has all memory and says what a
// step needs; the guard has 50, 30 and 20 % of that, and as much as save_on_cpu and checkpointing took. The bound
// beside it, with recomputation where it may, is the least time of any plan, from the guard's own op times and measured
// link. Medians and quartiles of all steps. save_on_cpu is torch.autograd.graph.save_on_cpu(pin_memory=True) in C++;
// checkpointing keeps each block's input. Losses are compared bit by bit with the plain cell's. Joules of a step are
// NVML's, where it is there.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/readable.h"
#include "gpu_table_cell.h"
#include "machine.h"
#include "train_cells.h"

namespace {

using namespace vedette;
using namespace vedette::bench;
using Json = nlohmann::json;

struct Options {
  bool small = false;
  int rounds = 3, steps = 10, warm_up = 30;  // a guard plans anew for what it measured, six times at most
  bool recompute = false;                    // of the one cell
  std::string json_path, slow = "host", cell, result;
  std::uint64_t budget = 0;
  DecoderShape shape{.layers = 24,
                     .heads = 16,
                     .width = 2048,
                     .context = 2048,
                     .batch = 16,
                     .symbols = 50257,
                     .bf16 = true,
                     .fused = true};
};

struct Cell {
  std::string name, way;
  bool recompute = false;
  std::uint64_t budget = 0;
  std::uint64_t moved = 0, recomputed = 0;  // bytes of a step
  std::vector<double> ms, joules;
  std::uint64_t peak = 0;
  Json losses;
  std::string phase, failure;
  double bound_ms = 0;
};

class Table {
 public:
  explicit Table(const Options& options) : options_(options) {}

  void run() {
    for (const char* const way : {"plain", "save_on_cpu", "checkpoint"}) cells_.push_back({.name = way, .way = way});
    once();
    if (cells_[0].failure.empty()) add_budgets();
    for (int round = 1; round < options_.rounds; ++round) once();
    print();
    if (!options_.json_path.empty()) std::ofstream(options_.json_path) << raw_.dump(1) << "\n";
  }
  bool whole() const {
    return std::all_of(cells_.begin(), cells_.end(), [](const Cell& cell) { return cell.failure.empty(); });
  }

 private:
  void add_budgets() {
    const auto add = [&](const std::string& name, std::uint64_t budget) {
      budget = std::max<std::uint64_t>(budget / (2 << 20), 1) * (2 << 20);
      for (const bool recompute : {false, true}) {
        const std::string what = recompute ? "again, " : "guard, ";
        cells_.push_back({.name = what + name, .way = "guard", .recompute = recompute, .budget = budget});
        one(cells_.back());
        Cell bound{.name = "bound", .way = "bound", .recompute = recompute, .budget = budget};
        one(bound);
        cells_.back().bound_ms = bound.bound_ms;
      }
    };
    const std::uint64_t peak = cells_[0].peak;
    for (const unsigned percent : {50u, 30u, 20u}) add(std::to_string(percent) + " %", peak / 100 * percent);
    for (std::size_t other : {1u, 2u})
      if (cells_[other].failure.empty() && cells_[other].peak < peak)
        add("as " + cells_[other].way, cells_[other].peak);
  }

  void once() {
    for (Cell& cell : cells_) one(cell);
  }

  void one(Cell& cell) {
    const std::string result = "/tmp/vedette-gpu-table-" + std::to_string(::getpid()) + ".json", log = result + ".log";
    // A bound needs one step by a plan; its observer slows steps down.
    const bool bound = cell.way == "bound";
    std::vector<std::string> words = {"/proc/self/exe",
                                      "--cell",
                                      cell.way,
                                      "--budget",
                                      std::to_string(cell.budget),
                                      "--result",
                                      result,
                                      "--steps",
                                      std::to_string(bound ? 1 : options_.steps),
                                      "--warm-up",
                                      std::to_string(bound || cell.budget == 0 ? 5 : options_.warm_up)};
    words.insert(words.end(), {"--slow", options_.slow});
    if (options_.small) words.push_back("--small");
    if (cell.recompute) words.push_back("--recompute");
    const DecoderShape& shape = options_.shape;
    const std::pair<const char*, std::int64_t> sizes[] = {{"--layers", shape.layers},
                                                          {"--heads", shape.heads},
                                                          {"--width", shape.width},
                                                          {"--context", shape.context},
                                                          {"--batch", shape.batch}};
    for (const auto& [name, value] : sizes) words.insert(words.end(), {name, std::to_string(value)});
    const ChildRun child = run_child(words, log, 3600);
    std::ifstream file(result);
    const Json told = child.status == 0 && file ? Json::parse(file, nullptr, false) : Json();
    if (!told.is_object()) {
      std::ifstream said(log);
      std::string line;
      while (std::getline(said, line)) cell.failure = line.empty() ? cell.failure : line;
      if (cell.failure.empty()) cell.failure = "it ended with status " + std::to_string(child.status);
    } else {
      take(cell, told);
    }
    std::remove(result.c_str());
    std::remove(log.c_str());
    std::fprintf(stderr, "%s: %s\n", cell.name.c_str(), cell.failure.empty() ? "done" : cell.failure.c_str());
  }

  void take(Cell& cell, const Json& told) {
    for (const double ms : told.at("step_ms")) cell.ms.push_back(ms);
    if (told.at("joules").is_number()) cell.joules.push_back(told.at("joules"));
    cell.peak = std::max(cell.peak, told.at("peak_bytes").get<std::uint64_t>());
    cell.losses = told.at("losses");
    cell.phase = told.value("phase", "");
    cell.moved = told.value("bytes_in", std::uint64_t{0}) + told.value("bytes_out", std::uint64_t{0});
    cell.recomputed = told.value("bytes_recomputed", std::uint64_t{0});
    cell.bound_ms = told.value("bound_ms", cell.bound_ms);
    if (mechanism_.empty()) mechanism_ = told.value("mechanism", "");
    raw_["cells"].push_back(told);
  }

  // Of as many steps as both have.
  std::string same_bits(const Cell& cell) const {
    const Json &mine = cell.losses, &plain = cells_[0].losses;
    for (std::size_t s = 0; s < std::min(mine.size(), plain.size()); ++s)
      if (mine[s] != plain[s]) return "no";
    return "yes";
  }

  void print() {
    const bool simulated = mechanism_.find("simulated") != std::string::npos;
    fmt::print("{}; {}\n", machine_line(), mechanism_.empty() ? "no guard ran" : mechanism_);
    if (simulated) fmt::print("REHEARSAL on a simulated GPU: times are the processor's and say nothing of a GPU\n");
    if (load_per_core() > busy_load) fmt::print("the machine is busy: these times are worth little\n");
    raw_["machine"] = machine_line();
    raw_["rehearsal"] = simulated;
    fmt::print("{:<22} {:>12} {:>12} {:>22} {:>9} {:>10} {:>11} {:>11} {:>9} {:>6}\n", "", "GPU memory", "step ms",
               "quartiles", "x plain", "bound ms", "moves", "recomputes", "joules", "bits");
    const double plain = spread(cells_[0].ms).median;
    for (const Cell& cell : cells_) {
      if (!cell.failure.empty()) {
        fmt::print("{:<22} {}\n", cell.name, cell.failure);
        continue;
      }
      const Spread ms = spread(cell.ms);
      fmt::print("{:<22} {:>12} {:>12.2f} {:>10.2f} to {:>8.2f} {:>9.2f} {:>10} {:>11} {:>11} {:>9} {:>6}{}\n",
                 cell.name, readable({cell.budget == 0 ? cell.peak : cell.budget}), ms.median, ms.lower, ms.upper,
                 plain / ms.median, cell.bound_ms > 0 ? fmt::format("{:.2f}", cell.bound_ms) : "-",
                 readable({cell.moved}), readable({cell.recomputed}),
                 cell.joules.empty() ? "-" : fmt::format("{:.1f}", spread(cell.joules).median), same_bits(cell),
                 cell.way == "guard" && cell.phase != "planned" ? "  (by no plan)" : "");
    }
    fmt::print("managed memory with prefetch: not in this table, since no allocator of it is written\n");
    if (cells_[0].joules.empty()) fmt::print("joules: NVML is not there\n");
  }

  const Options options_;
  std::vector<Cell> cells_;
  std::string mechanism_;
  Json raw_;
};

}  // namespace

int main(int count, char** words) {
  Options options;
  CLI::App app("What training in less GPU memory costs");
  app.add_flag("--small", options.small, "a decoder of a few megabytes, for the simulated GPU");
  app.add_option("--rounds", options.rounds, "how often each cell runs")->check(CLI::Range(1, 100));
  app.add_option("--steps", options.steps, "that count, of each run")->check(CLI::Range(1, 10000));
  app.add_option("--warm-up", options.warm_up, "steps of a guard before those")->check(CLI::Range(3, 10000));
  app.add_option("--json", options.json_path, "raw results");
  app.add_option("--slow", options.slow, "below the guard's GPU: host, or host:SIZE+nvme:DIRECTORY");
  for (const auto& [name, value] : std::map<std::string, std::int64_t*>{{"--layers", &options.shape.layers},
                                                                        {"--heads", &options.shape.heads},
                                                                        {"--width", &options.shape.width},
                                                                        {"--context", &options.shape.context},
                                                                        {"--batch", &options.shape.batch}})
    app.add_option(name, *value, "of the decoder")->check(CLI::Range(1, 1 << 20));
  app.add_option("--cell", options.cell, "one cell, in this process")->group("");
  app.add_option("--budget", options.budget)->group("");
  app.add_flag("--recompute", options.recompute)->group("");
  app.add_option("--result", options.result)->group("");
  CLI11_PARSE(app, count, words);
  if (options.small) options.shape = {.layers = 4, .heads = 4, .width = 128, .context = 128, .batch = 8, .symbols = 97};
  if (options.cell.empty()) {
    Table table(options);
    table.run();
    return table.whole() ? 0 : 1;
  }
  try {
    const Json result = run_cell({.way = options.cell,
                                  .recompute = options.recompute,
                                  .budget = options.budget,
                                  .slow = options.slow,
                                  .warm_up = options.warm_up,
                                  .steps = options.steps,
                                  .shape = options.shape});
    std::ofstream(options.result) << result.dump() << "\n";
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
