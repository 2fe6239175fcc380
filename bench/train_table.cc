// How fast does training run inside a budget, against plain libtorch and against what the disk allows?
//
// Each run is examples/train in a process of its own. In every round a plain run and one run per policy and budget
// follow each other. Each round also measures the disk by fio, on a file in the same directory, at the bound's mix of
// reads and writes. The bound is the bytes that Belady's choice moves at that budget on the recorded trace
// (belady_bound.h), over fio's bandwidth; it shares no code with the planner. Medians over all steps that ran by a
// plan.
//
// With --step-in-backward each run, the plain one too, has a second kind ("early" in the table), which updates each
// parameter as soon as its gradient is complete. All are compared to the plain run that updates after backward.
//
// Baselines: "plain" is libtorch with its own allocator and no guard; "arena" is the guard with the largest budget, the
// peak or more. "least ms" is the arena's step plus the stalls that no plan of the recorded step avoids
// (vedette/bound.h). The bar is 0.95 x plain's speed where the bound allows it, else 0.85 x the speed that the bound
// allows.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fio.h"
#include "machine.h"
#include "train_cells.h"
#include "vedette/model.h"

namespace vedette::bench {
namespace {

constexpr Bytes disk_file = 2_GiB;
constexpr double slowest_run_s = 1800;

struct Options {
  std::string train;  // the driver
  std::vector<std::string> models{"resnet18", "gpt"}, policies{"vedette"};
  std::vector<double> budgets{100, 50, 25, 20};
  int rounds = 3, steps = 9, threads = 2;
  double fio_seconds = 1;
  std::string slow = ".", json, lock;
  bool step_in_backward = false, quick = false, markdown = false;
};

class Folder {  // for the files of the runs; removed at the end
 public:
  explicit Folder(const std::string& parent) : path_(parent + "/vedette-table-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) throw Failure({.message = "no folder can be made in " + parent});
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

class Table {  // of one model
 public:
  Table(const Options& options, const Folder& folder, const DiskFile& disk, const std::string& model)
      : options_(options), folder_(folder), disk_(disk) {
    const std::vector<bool> kinds = options.step_in_backward ? std::vector{false, true} : std::vector{false};
    for (const bool early : kinds) cells_.push_back({.model = model, .step_in_backward = early});
    for (const bool early : kinds) {
      for (const std::string& policy : options.policies) {
        for (const double percent : options.budgets)
          cells_.push_back({.model = model, .policy = policy, .step_in_backward = early, .share = percent / 100});
      }
      for (const double percent : options.budgets)
        disks_.push_back({.share = percent / 100, .step_in_backward = early});
    }
  }

  void play(int round) {
    run(cells_.front(), round);
    if (!cells_.front().failure.empty())
      throw Failure({.message = "the plain run of " + cells_.front().model + ": " + cells_.front().failure});
    const std::size_t plain_runs = options_.step_in_backward ? 2 : 1;
    for (std::size_t i = 1; i < plain_runs; ++i) run(cells_[i], round);
    // Every guarded run has another place in each round: what lasts longer than a run (heat, a disk's cache) meets all
    // of them.
    const std::size_t guarded = cells_.size() - plain_runs;
    for (std::size_t i = 0; i < guarded; ++i)
      run(cells_[plain_runs + (i + static_cast<std::size_t>(round)) % guarded], round);
    if (round == 0) find_bounds();
    for (Disk& each : disks_) measure(each);
    if (round + 1 == options_.rounds) prove();
  }
  std::vector<Row> rows() const { return bench::rows(cells_, disks_); }
  const Cell& plain() const { return cells_.front(); }
  const std::optional<Trace>& trace() const { return trace_; }

 private:
  Bytes budget_of(double share) const {
    return {static_cast<std::uint64_t>(share * static_cast<double>(plain().peak_bytes))};
  }
  std::optional<Trace>& trace_of(const auto& each) { return each.step_in_backward ? early_trace_ : trace_; }

  void run(Cell& cell, int round) {
    if (!cell.failure.empty()) return;  // it would fail again
    const std::string result = folder_.file("result.json"), trace = folder_.file("trace"), log = folder_.file("log");
    std::filesystem::remove(result);
    std::filesystem::remove(log);
    std::vector<std::string> words = {options_.train,
                                      "--model",
                                      cell.model,
                                      "--steps",
                                      std::to_string(options_.steps),
                                      "--threads",
                                      std::to_string(options_.threads),
                                      "--json",
                                      result};
    if (cell.step_in_backward) words.push_back("--step-in-backward");
    if (cell.plain()) {
      words.push_back("--plain");
    } else {
      cell.budget = budget_of(cell.share);
      words.insert(words.end(), {"--fast-memory", std::to_string(cell.budget.value), "--policy", cell.policy, "--slow",
                                 "nvme:" + options_.slow});
      if (!trace_of(cell)) words.insert(words.end(), {"--planned-traces", trace});
    }
    const ChildRun child = [&] {
      const Turn turn(options_.lock);
      return run_child(words, log, slowest_run_s);
    }();
    const auto json = nlohmann::json::parse(contents(result), nullptr, false);
    if (child.status != 0 || json.is_discarded()) {
      cell.failure = fmt::format("{} (status {})", last_line(contents(log)), child.status);
    } else {
      cell.add(json, child.others_cores);
      if (!cell.plain() && !trace_of(cell)) trace_of(cell) = parse_trace(contents(trace + ".0.program")).value();
    }
    fmt::print(stderr, "{} {} {:3.0f} %{}  round {}  {:6.1f} s, others {:.2f} cores  {}\n", cell.model,
               cell.plain() ? "plain" : cell.policy, cell.share * 100, cell.step_in_backward ? ", early" : "",
               round + 1, child.wall_s, child.others_cores, cell.failure);
  }

  void find_bounds() {
    for (Disk& each : disks_) {
      const auto& trace = trace_of(each);
      if (trace) each.moves = belady_bound(*trace, budget_of(each.share));
    }
  }

  void measure(Disk& each) {
    if (!each.moves || (each.moves->read + each.moves->written).value == 0) return;
    const Turn turn(options_.lock);
    each.bytes_per_s.push_back(run_fio({.file = disk_.path(),
                                        .size = disk_file,
                                        .read_percent = each.read_percent(),
                                        .seconds = options_.fio_seconds})
                                   .bytes_per_s);
  }

  void prove() {
    for (Disk& each : disks_)
      if (trace_of(each)) each.prove(*trace_of(each), budget_of(each.share));
  }

  const Options& options_;
  const Folder& folder_;
  const DiskFile& disk_;
  std::vector<Cell> cells_;  // plain first
  std::vector<Disk> disks_;  // one a budget and kind
  // of the first guarded run of a kind, large ops in sections: the program is the same in all
  std::optional<Trace> trace_, early_trace_;
};

void print_head(const Options& options, double load) {
  fmt::print("machine: {}, huge pages: {}\nslow tier: {}, {}; fio: {}", machine_line(), huge_pages(), options.slow,
             file_system_of(options.slow), output_of("fio --version"));
  fmt::print("{} rounds of {} steps, {} threads of libtorch; load before the start {:.2f} a core{}\n", options.rounds,
             options.steps, options.threads, load,
             load > busy_load ? ": BUSY MACHINE, the times below are worth little" : "");
  std::fflush(stdout);
}

void print(const Options& options, const Table& table) {
  const auto mib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / 1048576; };
  fmt::print("\n{}: libtorch {}, peak {:.0f} MiB", table.plain().model, table.plain().torch,
             mib(table.plain().peak_bytes));
  if (table.trace()) {
    fmt::print(" (of the recorded step {:.0f}, of its largest op {:.0f}), {} ops, {} tensors",
               mib(peak_bytes(*table.trace()).value), mib(largest_op_bytes(*table.trace()).value),
               table.trace()->ops.size(), table.trace()->tensors.size());
  }
  fmt::print("\n{}\n", text_head());
  for (const Row& row : table.rows()) fmt::print("{}\n", text(row));
  if (options.markdown) {
    fmt::print("\n{}\n", markdown_head());
    for (const Row& row : table.rows()) fmt::print("{}\n", markdown(row));
  }
  std::fflush(stdout);
}

void write_json(const Options& options, double load, const std::vector<Table>& tables) {
  nlohmann::ordered_json all = {{"machine", machine_line()},
                                {"huge_pages", huge_pages()},
                                {"slow", file_system_of(options.slow)},
                                {"torch", tables.front().plain().torch},
                                {"threads", options.threads},
                                {"rounds", options.rounds},
                                {"steps", options.steps},
                                {"load_per_core", load},
                                {"busy", load > busy_load},
                                {"rows", nlohmann::ordered_json::array()}};
  for (const Table& table : tables) {
    for (const Row& row : table.rows()) all["rows"].push_back(json(row));
  }
  std::ofstream file(options.json);
  file << all.dump(2) << std::endl;
  if (!file) throw Failure({.message = "writing " + options.json + " failed"});
}

int measure(const Options& options) {
  if (!fio_is_installed())
    throw Failure({.message = "fio is not installed (apt-get install fio): the bound needs its bandwidth"});
  if (::access(options.train.c_str(), X_OK) != 0)
    throw Failure({.message = options.train + " is not there: build it, or tell with --train where it is"});
  const double load = load_per_core();
  print_head(options, load);
  const Folder folder(options.slow);
  const DiskFile disk(options.slow, disk_file);
  {
    const Turn turn(options.lock);
    fill_by_fio({.file = disk.path(), .size = disk_file});
  }
  std::vector<Table> tables;
  for (const std::string& model : options.models) {
    Table& table = tables.emplace_back(options, folder, disk, model);
    for (int round = 0; round < options.rounds; ++round) table.play(round);
    print(options, table);
    if (!options.json.empty())
      write_json(options, load, tables);  // after each model: an interrupted run keeps its results
  }
  bool right = true;
  for (const Table& table : tables) {
    for (const Row& row : table.rows()) right = right && row.equal && row.cell->repeats && row.cell->failure.empty();
  }
  return right ? 0 : 1;
}

int train_table(int count, char** words) {
  Options options;
  options.train = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "examples" / "train";
  CLI::App app(
      "Plain libtorch and guarded training in turns, beside what Belady's bytes take on this disk. Exit status 1: a "
      "run "
      "failed, "
      "or its losses are not those of the plain run.");
  app.add_option("--models", options.models, "models of examples/train")->delimiter(',')->capture_default_str();
  app.add_option("--budgets", options.budgets, "percent of the plain run's peak")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--policies", options.policies, "policies, each at every budget")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--rounds", options.rounds, "how often each cell is run")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--steps", options.steps, "of a run; the first three, and all before the plan, do not count")
      ->capture_default_str()
      ->check(CLI::Range(4, 100000));
  app.add_option("--threads", options.threads, "threads of libtorch")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--slow", options.slow, "directory of the slow tier")
      ->capture_default_str()
      ->check(CLI::ExistingDirectory);
  app.add_option("--train", options.train, "the driver of the runs")->capture_default_str();
  app.add_option("--json", options.json, "write all rows to this file");
  app.add_option("--lock", options.lock, "hold this file (flock) during each run, so that others can wait");
  app.add_flag("--step-in-backward", options.step_in_backward, "each run also with vedette::step_in_backward");
  app.add_flag("--markdown", options.markdown, "print the rows for a README, too");
  app.add_flag("--quick", options.quick, "one short round of resnet18: to see that it works, not how fast");
  CLI11_PARSE(app, count, words);
  if (options.quick) {
    if (app.count("--models") == 0) options.models = {"resnet18"};
    if (app.count("--rounds") == 0) options.rounds = 1;
    if (app.count("--steps") == 0) options.steps = 7;
    options.fio_seconds = 0.5;
  }
  return measure(options);
}

}  // namespace
}  // namespace vedette::bench

int main(int count, char** words) {
  try {
    return vedette::bench::train_table(count, words);
  } catch (const std::exception& error) {
    fmt::print(stderr, "train_table: {}\n", error.what());
    return 1;
  }
}
