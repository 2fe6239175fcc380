// How fast does a model train in less GPU memory: with a guard that moves tensors, with one that
// recomputes them too ("again"), with saved tensors in pinned memory, with checkpointing, in managed memory?
//
//   build/release/bench/gpu_table --json gpu.json    # on a GPU: a decoder of 1.3 billion
//   scripts/with_simulated_gpu build/release/bench/gpu_table --small --rounds 1
//
// The second is a rehearsal, whose times say nothing of a GPU.
//
// Each cell is a process of its own; cells alternate, --rounds times. The plain cell has all memory and says what a
// step needs; where it does not fit, a guard of all memory says it. The guard has 50, 30 and 20 % of that, and as much
// as save_on_cpu and checkpointing took. The bound beside it, with recomputation where it may, is the least time of any
// plan, from the guard's own op times and measured link. Medians and quartiles of all steps. save_on_cpu is
// torch.autograd.graph.save_on_cpu(pin_memory=True) in C++; checkpointing keeps each block's input; fsdp2_offload is
// fsdp2_offload.py beside this file, FSDP2's CPU offload in Python. Managed memory (gpu_managed.h) has the guard's
// budgets: the rest of the device is held by one allocation. Losses are compared bit by bit with the plain cell's first
// run, whose later runs are compared with it, too: without --deterministic a GPU's operators need not repeat. Joules of
// a step are NVML's, where it is there.
//
// --json is written after each cell; --seconds ends the table in time, and --resume takes the cells that are there.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/readable.h"
#include "cuda/device.h"
#include "gpu_table_cell.h"
#include "machine.h"
#include "train_cells.h"

namespace {

using namespace vedette;
using namespace vedette::bench;
using Json = nlohmann::json;

struct Options {
  bool small = false, deterministic = false;
  int rounds = 3, steps = 10, warm_up = 40;  // by then a guard has tried its plans, and keeps one
  bool recompute = false;                    // of the one cell
  double seconds = 86400;                    // of the whole table
  std::string model = "decoder", json_path, resume, slow = "host", cell, result;
  std::vector<std::string> only;  // how cells' names begin; empty: all
  std::uint64_t budget = 0;
  DecoderShape shape{.layers = 24,
                     .heads = 16,
                     .width = 2048,
                     .context = 2048,
                     .batch = 0,
                     .symbols = 50257,
                     .bf16 = true,
                     .fused = true};
};

struct Cell {
  std::string name, way;
  bool recompute = false;
  std::uint64_t budget = 0;
  std::uint64_t moved = 0, recomputed = 0, prefetched = 0;  // bytes of a step
  std::vector<double> ms, joules;
  std::uint64_t peak = 0;
  Json losses;
  bool repeats = true;  // all runs had the losses of the first
  std::string phase, failure;
  double bound_ms = 0;
};

// The largest batch whose step should fit into what is free. Parameters, gradients and two moments take 4 bytes each;
// by the predictions (docs/gpu-predictions.md) there are 26 bytes of activations for each number of a layer, 10 for
// each logit.
std::int64_t fitting_batch(const DecoderShape& s, double free) {
  const auto width = static_cast<double>(s.width), layers = static_cast<double>(s.layers),
             symbols = static_cast<double>(s.symbols);
  const double fixed = 16 * (12 * layers * width * width + 2 * symbols * width);
  const double sample = static_cast<double>(s.context) * (26 * layers * width + 10 * symbols);
  std::int64_t found = 1;
  for (const std::int64_t batch : {2, 4, 6, 8, 12, 16})
    if (fixed + static_cast<double>(batch) * sample <= 0.92 * free) found = batch;
  return found;
}

// What of the decoder's shape is an option, and its value where --small is given and it is not.
struct Size {
  const char* name;
  std::int64_t DecoderShape::*member;
  std::int64_t small, least;
  const char* what;
};
constexpr Size sizes[] = {
    {"--layers", &DecoderShape::layers, 4, 1, "of the decoder"},
    {"--heads", &DecoderShape::heads, 4, 1, "of the decoder"},
    {"--width", &DecoderShape::width, 128, 1, "of the decoder"},
    {"--context", &DecoderShape::context, 128, 1, "of the decoder"},
    {"--batch", &DecoderShape::batch, 8, 0, "samples; 0: as many as should fit without a guard"},
};

constexpr const char* offload = "fsdp2_offload";

// The program of that cell, beside this one in a bundle, and a Python that has torch: VEDETTE_PYTHON, or the build's.
std::vector<std::string> in_python() {
  const char* const given = std::getenv("VEDETTE_PYTHON");
  std::error_code none;
  const auto beside = std::filesystem::read_symlink("/proc/self/exe", none).replace_filename("fsdp2_offload.py");
  if (std::filesystem::exists(beside)) return {"/usr/bin/env", given == nullptr ? "python3" : given, beside.string()};
  return {"/usr/bin/env", given == nullptr ? TORCH_PYTHON : given, VEDETTE_SOURCE "/bench/fsdp2_offload.py"};
}

constexpr unsigned shares[] = {50, 30, 20};  // of the peak, in percent

std::uint64_t whole_blocks(std::uint64_t bytes) {
  constexpr std::uint64_t block = 2 << 20;
  return std::max<std::uint64_t>(bytes / block, 1) * block;
}

std::shared_ptr<cuda::Device> open_device() {  // nullptr: there is none
  auto driver = cuda::Driver::load();
  if (!driver) return nullptr;
  auto device = cuda::Device::open(std::move(*driver), 0);
  return device ? std::move(*device) : nullptr;
}

double free_memory() {
  const auto device = open_device();
  if (device == nullptr) return 0;
  const auto memory = device->memory();
  return memory ? static_cast<double>(memory->free.value) : 0;
}

std::string name_of_device() {
  const auto device = open_device();
  return device ? device->name() : "no GPU";
}

class Table {
 public:
  explicit Table(const Options& options) : options_(options) {
    const DecoderShape& s = options.shape;
    raw_["settings"] = {{"model", options.model},
                        {"small", options.small},
                        {"deterministic", options.deterministic},
                        {"steps", options.steps},
                        {"warm_up", options.warm_up},
                        {"slow", options.slow},
                        {"layers", s.layers},
                        {"heads", s.heads},
                        {"width", s.width},
                        {"context", s.context},
                        {"batch", s.batch}};
    raw_["cells"] = Json::array();
    if (options.resume.empty()) return;
    const Json before = Json::parse(std::ifstream(options.resume), nullptr, false);
    if (before.is_object() && before.value("settings", Json()) == raw_["settings"]) {
      before_ = before.at("cells");
    } else if (before.is_object()) {
      std::fprintf(stderr, "%s is of other settings: nothing of it is taken\n", options.resume.c_str());
    }
  }

  void run() {
    for (const char* const way : {"plain", "save_on_cpu"}) cells_.push_back({.name = way, .way = way});
    if (options_.model == "decoder")
      for (const char* const way : {"checkpoint", offload}) cells_.push_back({.name = way, .way = way});
    round();
    add_budgets();
    while (++round_ < options_.rounds) round();
    print();
    save();
  }
  bool whole() const {
    return std::all_of(cells_.begin(), cells_.end(), [](const Cell& cell) { return cell.failure.empty(); });
  }

 private:
  double seconds_left() const {
    return options_.seconds - std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  }

  bool wanted(const std::string& name) const {
    return options_.only.empty() || std::any_of(options_.only.begin(), options_.only.end(),
                                                [&](const auto& part) { return name.starts_with(part); });
  }

  // What a step needs: of the plain cell, or else of a guard with nearly all memory. What it leaves is for tensors that
  // stay with libtorch's allocator, and for the workspaces of libraries.
  std::uint64_t peak() {
    if (cells_[0].peak == 0 && cells_[0].failure.empty()) one(cells_[0], true);
    if (cells_[0].peak > 0) return cells_[0].peak;
    std::fprintf(stderr, "the plain cell has no peak (%s): a guard of all free memory measures it\n",
                 cells_[0].failure.empty() ? "it did not run" : cells_[0].failure.c_str());
    const auto most = static_cast<std::uint64_t>(0.85 * free_memory()) / (2 << 20) * (2 << 20);
    cells_.push_back({.name = "guard, all memory", .way = "guard", .budget = most});
    one(cells_.back(), true);
    return cells_.back().peak;
  }

  void add_budgets() {
    const std::uint64_t all = peak();
    const auto add = [&](const std::string& name, std::uint64_t budget) {
      budget = whole_blocks(budget);
      for (const bool recompute : {false, true}) {
        const std::string what = (recompute ? "again, " : "guard, ") + name;
        if (!wanted(what)) continue;
        cells_.push_back({.name = what, .way = "guard", .recompute = recompute, .budget = budget});
        one(cells_.back());
        Cell bound{.name = "bound of " + what, .way = "bound", .recompute = recompute, .budget = budget};
        one(bound, true);
        cells_.back().bound_ms = bound.bound_ms;
      }
    };
    if (all == 0) return;
    for (const unsigned percent : shares) add(std::to_string(percent) + " %", all / 100 * percent);
    for (std::size_t other = 1; other < cells_.size() && cells_[other].way != "guard"; ++other)
      if (cells_[other].peak > 0 && cells_[other].peak < all) add("as " + cells_[other].way, cells_[other].peak);
    for (const unsigned percent : shares) {
      const std::string what = "managed, " + std::to_string(percent) + " %";
      if (!wanted(what)) continue;
      cells_.push_back({.name = what, .way = "managed", .budget = whole_blocks(all / 100 * percent)});
      one(cells_.back());
    }
  }

  void round() {
    for (Cell& cell : cells_) one(cell);
  }

  std::vector<std::string> words_of(const Cell& cell, const std::string& result) const {
    // A bound needs one step by a plan; its observer slows steps down.
    const bool bound = cell.way == "bound";
    const int warm_up = bound || cell.way != "guard" ? std::min(5, options_.warm_up) : options_.warm_up;
    std::vector<std::string> words = cell.way == offload ? in_python() : std::vector<std::string>{"/proc/self/exe"};
    const auto add = [&](const char* name, const std::string& value) { words.insert(words.end(), {name, value}); };
    add("--cell", cell.way);
    add("--budget", std::to_string(cell.budget));
    add("--result", result);
    add("--steps", std::to_string(bound ? 1 : options_.steps));
    add("--warm-up", std::to_string(warm_up));
    add("--model", options_.model);
    add("--slow", options_.slow);
    if (options_.small) words.push_back("--small");
    if (options_.deterministic) words.push_back("--deterministic");
    if (cell.recompute) words.push_back("--recompute");
    for (const Size& size : sizes) add(size.name, std::to_string(options_.shape.*size.member));
    return words;
  }

  const Json* done_before(const Cell& cell) const {
    for (const Json& told : before_)
      if (told.value("cell", "") == cell.name && told.value("round", -1) == round_ &&
          told.value("budget", std::uint64_t{0}) == cell.budget)
        return &told;
    return nullptr;
  }

  // `needed`: though --only names others.
  void one(Cell& cell, bool needed = false) {
    if (!needed && !wanted(cell.name)) return;
    if (const Json* const told = done_before(cell)) return take(cell, *told);
    if (seconds_left() < 5) {
      if (cell.ms.empty()) cell.failure = "left out, since --seconds are used up; --resume goes on";
      return;
    }
    const std::string result = "/tmp/vedette-gpu-table-" + std::to_string(::getpid()) + ".json", log = result + ".log";
    const ChildRun child = run_child(words_of(cell, result), log, std::min(3600.0, seconds_left()));
    std::ifstream file(result);
    Json told = child.status == 0 && file ? Json::parse(file, nullptr, false) : Json();
    if (!told.is_object()) {
      std::ifstream said(log);
      std::string line;
      while (std::getline(said, line)) cell.failure = line.empty() ? cell.failure : line;
      if (seconds_left() <= 0) cell.failure = "cut off, since --seconds are used up; --resume goes on";
      if (cell.failure.empty()) cell.failure = "it ended with status " + std::to_string(child.status);
    } else {
      told["cell"] = cell.name;
      told["round"] = round_;
      take(cell, told);
    }
    std::remove(result.c_str());
    std::remove(log.c_str());
    std::fprintf(stderr, "%s: %s\n", cell.name.c_str(), cell.failure.empty() ? "done" : cell.failure.c_str());
    save();
  }

  void take(Cell& cell, const Json& told) {
    cell.failure.clear();
    for (const double ms : told.at("step_ms")) cell.ms.push_back(ms);
    if (told.at("joules").is_number()) cell.joules.push_back(told.at("joules"));
    cell.peak = std::max(cell.peak, told.at("peak_bytes").get<std::uint64_t>());
    if (cell.losses.is_null()) cell.losses = told.at("losses");
    cell.repeats = cell.repeats && same(cell.losses, told.at("losses"));
    cell.phase = told.value("phase", "");
    cell.moved = told.value("bytes_in", std::uint64_t{0}) + told.value("bytes_out", std::uint64_t{0});
    cell.prefetched = told.value("bytes_prefetched", std::uint64_t{0});
    cell.recomputed = told.value("bytes_recomputed", std::uint64_t{0});
    cell.bound_ms = told.value("bound_ms", cell.bound_ms);
    if (mechanism_.empty()) mechanism_ = told.value("mechanism", "");
    raw_["cells"].push_back(told);
  }

  // The file is the old one or the new one, whenever the process ends.
  void save() {
    if (options_.json_path.empty()) return;
    raw_["machine"] = machine_line();
    raw_["device"] = device_;
    raw_["rehearsal"] = rehearsal();
    const std::string beside = options_.json_path + ".new";
    std::ofstream(beside) << raw_.dump(1) << "\n";
    std::error_code failed;
    std::filesystem::rename(beside, options_.json_path, failed);
    if (failed) std::fprintf(stderr, "%s cannot be written\n", options_.json_path.c_str());
  }

  bool rehearsal() const { return device_.find("simulated") != std::string::npos; }

  // Of as many steps as both have.
  static bool same(const Json& one, const Json& other) {
    const std::size_t count = std::min(one.size(), other.size());
    return std::equal(one.begin(), one.begin() + static_cast<std::ptrdiff_t>(count), other.begin());
  }

  void print_head() const {
    fmt::print("{}; {}; {}\n", machine_line(), device_, mechanism_.empty() ? "no guard ran" : mechanism_);
    if (rehearsal()) fmt::print("REHEARSAL on a simulated GPU: times are the processor's and say nothing of a GPU\n");
    if (load_per_core() > busy_load) fmt::print("the machine is busy: these times are worth little\n");
    fmt::print("{}, batch {}; {}; the plain cell's runs have {}\n", options_.model, options_.shape.batch,
               options_.deterministic ? "deterministic algorithms where there are any"
                                      : "libtorch's usual algorithms, which need not repeat",
               cells_[0].losses.is_null() || round_ < 2 ? "not been compared with each other"
               : cells_[0].repeats                      ? "equal losses"
                                                        : "DIFFERENT losses: unequal bits below say nothing");
    fmt::print("{:<22} {:>12} {:>12} {:>22} {:>9} {:>10} {:>11} {:>11} {:>9} {:>6}\n", "", "GPU memory", "step ms",
               "quartiles", "x plain", "bound ms", "moves", "recomputes", "joules", "bits");
  }

  static std::string note(const Cell& cell) {
    if (cell.way == "guard" && cell.phase != "planned") return "  (by no plan)";
    if (cell.way == offload) return "  (bf16 of its own, the processor updates)";
    if (cell.way == "managed") return "  (moves are the driver's; prefetches of " + readable({cell.prefetched}) + ")";
    return "";
  }

  void print() {
    print_head();
    const double plain = spread(cells_[0].ms).median;
    for (const Cell& cell : cells_) {
      if (!cell.failure.empty()) fmt::print("{:<22} {}\n", cell.name, cell.failure);
      if (cell.ms.empty()) continue;
      const Spread ms = spread(cell.ms);
      fmt::print("{:<22} {:>12} {:>12.2f} {:>10.2f} to {:>8.2f} {:>9} {:>10} {:>11} {:>11} {:>9} {:>6}{}\n", cell.name,
                 readable({cell.budget == 0 ? cell.peak : cell.budget}), ms.median, ms.lower, ms.upper,
                 plain > 0 ? fmt::format("{:.2f}", plain / ms.median) : "-",
                 cell.bound_ms > 0 ? fmt::format("{:.2f}", cell.bound_ms) : "-",
                 cell.way == "managed" ? "-" : readable({cell.moved}), readable({cell.recomputed}),
                 cell.joules.empty() ? "-" : fmt::format("{:.1f}", spread(cell.joules).median),
                 cells_[0].losses.is_null()            ? "-"
                 : same(cells_[0].losses, cell.losses) ? "yes"
                                                       : "no",
                 note(cell));
    }
    fmt::print(
        "managed: libtorch's segments are managed memory, and each op prefetches what the op 16 after it used a step "
        "before\n");
    if (cells_[0].joules.empty()) fmt::print("joules: NVML is not there\n");
  }

  const Options options_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::vector<Cell> cells_;
  int round_ = 0;
  const std::string device_ = name_of_device();
  std::string mechanism_;
  Json raw_, before_ = Json::array();
};

void add_options(CLI::App& app, Options& options) {
  app.add_flag("--small", options.small, "shapes of a few megabytes where none is given, for the simulated GPU");
  app.add_option("--rounds", options.rounds, "how often each cell runs")->check(CLI::Range(1, 100));
  app.add_option("--steps", options.steps, "that count, of each run")->check(CLI::Range(1, 10000));
  app.add_option("--warm-up", options.warm_up, "steps of a guard before those")->check(CLI::Range(3, 10000));
  app.add_option("--model", options.model, "what trains")->check(CLI::IsMember({"decoder", "vit", "resnet50"}));
  app.add_flag("--deterministic", options.deterministic, "deterministic algorithms, in all cells");
  app.add_option("--only", options.only, "cells whose names begin so; may be given several times");
  app.add_option("--seconds", options.seconds, "no cell runs longer than until then");
  app.add_option("--json", options.json_path, "raw results, written after each cell");
  app.add_option("--resume", options.resume, "raw results of a table that was cut off: its cells are taken");
  app.add_option("--slow", options.slow, "below the guard's GPU: host, or host:SIZE+nvme:DIRECTORY");
  for (const Size& size : sizes)
    app.add_option(size.name, options.shape.*size.member, size.what)
        ->check(CLI::Range(size.least, std::int64_t{1} << 20));
  app.add_option("--cell", options.cell, "one cell, in this process")->group("");
  app.add_option("--budget", options.budget)->group("");
  app.add_flag("--recompute", options.recompute)->group("");
  app.add_option("--result", options.result)->group("");
}

// The small form of the decoder's shape, but for what was given.
void make_small(const CLI::App& app, DecoderShape& shape) {
  for (const Size& size : sizes)
    if (app.count(size.name) == 0) shape.*size.member = size.small;
  shape.symbols = 97;
  shape.bf16 = shape.fused = false;
}

}  // namespace

int main(int count, char** words) {
  Options options;
  CLI::App app("What training in less GPU memory costs");
  add_options(app, options);
  CLI11_PARSE(app, count, words);
  if (options.small) make_small(app, options.shape);
  if (options.model == "decoder" && options.shape.batch == 0)
    options.shape.batch = fitting_batch(options.shape, free_memory());
  if (options.cell.empty()) {
    Table table(options);
    table.run();
    return table.whole() ? 0 : 1;
  }
  try {
    const Json result = run_cell({.way = options.cell,
                                  .model = options.model,
                                  .recompute = options.recompute,
                                  .small = options.small,
                                  .deterministic = options.deterministic,
                                  .budget = options.budget,
                                  .slow = options.slow,
                                  .warm_up = options.warm_up,
                                  .steps = options.steps,
                                  .shape = options.shape});
    std::ofstream(options.result) << result.dump() << "\n";
  } catch (const std::exception& error) {
    const std::string sentence = error.what();  // libtorch's go on with the stack
    std::fprintf(stderr, "%s\n", sentence.substr(0, sentence.find('\n')).c_str());
    return 1;
  }
}
