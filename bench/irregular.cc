// How fast do programs run whose steps never repeat, inside a budget, against plain libtorch?
//
// Eight programs (irregular_programs.h). Each run is a process of its own. In every round a plain run and one for each
// budget follow each other, with --before also one of another version. Every run has to end with the plain run's bits.
// The time of a run is that of its steps from the third on, in all, because they differ. The ideal is plain.
// With --kernel-swap a plain run in a memory cgroup follows each guarded one, whose memory the kernel swaps to the same
// disk. Its limit is the budget and the program's own memory: the most that is charged for the program with small
// shapes, without a limit. Where no such run can be made, a sentence says why.
// With --device cuda the programs train on a GPU, and the budget is of its memory (scripts/with_simulated_gpu).
// Beside the ratio stand the bytes that moved, those that left for nothing, how often the program waited, and the page
// faults that no op announced. With --causes: also what came while a thread waited for it, and what left for a thread
// that waited for room.
#include <ATen/Parallel.h>
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "counting_allocator.h"
#include "device.h"
#include "irregular_programs.h"
#include "kernel_swap.h"
#include "machine.h"
#include "train_cells.h"

namespace vedette::bench {
namespace {

struct Options {
  std::vector<std::string> programs;
  std::vector<double> budgets{50, 25};
  int rounds = 3, steps = 14, threads = 2;
  bool small = false, causes = false, kernel_swap = false;
  std::string slow = ".", device = "cpu", json, driver, before;
  std::string one, result;  // this process is a run of that program
  std::uint64_t budget = 0, swap_mib = 2048;
};

constexpr int not_counted = 2;
constexpr double slowest_run_s = 1800;

// --- one run ---------------------------------------------------------------------------------------------------------

// Bytes by the cause of their move. Called by several threads, with the engine's lock held.
class Causes final : public Observer {
 public:
  void moved(const MoveRecord& move) override {
    if (move.cause == MoveCause::urgent) late_in_ += move.bytes.value;
    if (move.cause == MoveCause::room && move.verb != Verb::fetch) room_out_ += move.bytes.value;
  }
  std::uint64_t late_in() const { return late_in_; }    // a thread waited for them
  std::uint64_t room_out() const { return room_out_; }  // a thread waited for their room

 private:
  std::uint64_t late_in_ = 0, room_out_ = 0;
};

nlohmann::json run_program(const Options& options, const Program& program) {
  at::set_num_threads(options.threads);
  const bool on_gpu = options.device == "cuda";
  Run run{.small = options.small, .device = options.device, .steps = options.steps};
  nlohmann::json result;
  torch::manual_seed(3);
  if (options.budget == 0) {
    examples::forget_peak();
    program.run(run);
    result = {{"peak_bytes", on_gpu ? examples::device_peak_bytes() : examples::counted_peak_bytes()}};
  } else {
    Causes causes;
    Guard guard({.fast_memory = {options.budget},
                 .fast = on_gpu ? "gpu:0" : "dram",
                 .slow = on_gpu ? "host" : "nvme:" + options.slow,
                 .chunk = options.small ? 32_KiB : 2_MiB,
                 .observer = options.causes ? &causes : nullptr,
                 .on_message = [](std::string_view) {}});
    run.guard = &guard;
    program.run(run);
    const Counters counters = guard.counters();
    result = {{"bytes_in", counters.bytes_in.value},
              {"bytes_out", counters.bytes_out.value},
              {"bytes_left_for_nothing", counters.bytes_dropped.value},
              {"stalls", counters.stall_count},
              {"stall_ms", static_cast<double>(counters.stall_ns) / 1e6},
              {"faults", counters.faults},
              {"ops", counters.ops}};
    if (options.causes) {
      result["bytes_in_late"] = causes.late_in();
      result["bytes_out_for_room"] = causes.room_out();
    }
  }
  result["step_ms"] = run.step_ms;
  result["losses"] = run.losses;
  result["bits"] = run.bits;
  return result;
}

// --- all runs --------------------------------------------------------------------------------------------------------

struct Cell {
  double percent = 0;   // of plain's peak; 0: plain
  bool before = false;  // of the version to compare with
  bool swaps = false;   // plain within a limit of the kernel
  std::vector<double> ms, ratio;
  nlohmann::json latest;
  bool equal = true;

  bool killed() const { return latest.contains("killed"); }  // the kernel found nothing to swap
};

double counted_ms(const nlohmann::json& run) {
  const auto ms = run.at("step_ms").get<std::vector<double>>();
  return std::accumulate(ms.begin() + std::min<std::ptrdiff_t>(not_counted, std::ssize(ms)), ms.end(), 0.0);
}

class Table {
 public:
  Table(const Options& options, std::string folder, const Program& program)
      : options_(options), folder_(std::move(folder)), program_(program) {
    cells_.push_back({});
    for (const double percent : options.budgets) {
      if (!options.before.empty()) cells_.push_back({.percent = percent, .before = true});
      cells_.push_back({.percent = percent});
      if (options.kernel_swap) cells_.push_back({.percent = percent, .swaps = true});
    }
  }

  void play() {
    for (Cell& cell : cells_) {
      cell.latest = child(cell);
      const nlohmann::json& run = cell.latest;
      const nlohmann::json& plain = cells_.front().latest;
      if (cell.killed()) continue;
      cell.ms.push_back(counted_ms(run));
      if (cell.percent > 0) {
        cell.ratio.push_back(cells_.front().ms.back() / cell.ms.back());
        cell.equal = cell.equal && run.at("losses") == plain.at("losses") && run.at("bits") == plain.at("bits");
      }
    }
  }

  bool print() const {
    bool right = true;
    for (const Cell& cell : cells_) {
      const auto figure = [&](const char* key) { return cell.latest.value(key, 0.0); };
      right = right && cell.equal;
      if (cell.killed()) {
        fmt::print("{:<20} {:>8} killed for memory in a limit of so much\n", program_.name,
                   fmt::format("{:.0f} % swap", cell.percent));
        continue;
      }
      fmt::print(
          "{:<20} {:>8} {:>10.0f} {:>8.3f} {:>7.0f} {:>7.0f} {:>7.0f} {:>7.0f} {:>7.0f} {:>7.0f} {:>9.0f} "
          "{:>8.0f}  {}\n",
          program_.name,
          cell.percent == 0 ? "plain"
                            : fmt::format("{:.0f} %{}", cell.percent,
                                          cell.before  ? " old"
                                          : cell.swaps ? " swap"
                                                       : ""),
          spread(cell.ms).median, cell.percent == 0 ? 1.0 : spread(cell.ratio).median, figure("bytes_in") / 1048576,
          figure("bytes_out") / 1048576, figure("bytes_left_for_nothing") / 1048576, figure("bytes_in_late") / 1048576,
          figure("bytes_out_for_room") / 1048576, figure("stalls"), figure("stall_ms"), figure("faults"),
          cell.percent == 0 ? fmt::format("peak {:.0f} MiB", figure("peak_bytes") / 1048576)
                            : (cell.equal ? "equal bits" : "OTHER BITS"));
    }
    std::fflush(stdout);
    return right;
  }

  void add_to(nlohmann::ordered_json& rows) const {
    for (const Cell& cell : cells_) {
      nlohmann::ordered_json row = {{"program", program_.name},  {"percent", cell.percent}, {"before", cell.before},
                                    {"kernel_swap", cell.swaps}, {"ms", cell.ms},           {"x_plain", cell.ratio},
                                    {"equal", cell.equal}};
      for (const auto& [key, value] : cell.latest.items())
        if (key != "losses" && key != "bits") row[key] = value;
      rows.push_back(row);
    }
  }

 private:
  std::vector<std::string> words_of(const std::string& driver, bool small) const {
    std::vector<std::string> words = {driver,
                                      "--one",
                                      program_.name,
                                      "--result",
                                      folder_ + "/result",
                                      "--steps",
                                      std::to_string(options_.steps),
                                      "--threads",
                                      std::to_string(options_.threads),
                                      "--slow",
                                      options_.slow,
                                      "--device",
                                      options_.device};
    if (small) words.push_back("--small");
    return words;
  }

  std::uint64_t own_memory() {
    if (own_memory_ == 0)
      own_memory_ = run_within(4_GiB, words_of(options_.driver, true), folder_ + "/log", slowest_run_s).charged;
    return own_memory_;
  }

  nlohmann::json child(const Cell& cell) {
    std::uint64_t budget = 0;
    if (cell.percent > 0) {
      const double peak = cells_.front().latest.at("peak_bytes").get<double>();
      const auto least = static_cast<std::uint64_t>(options_.small ? 12 * 32 << 10 : 24 << 20);
      budget = std::max(least, static_cast<std::uint64_t>(peak * cell.percent / 100));
    }
    const std::uint64_t limit = cell.swaps ? budget + own_memory() : 0;
    std::vector<std::string> words = words_of(cell.before ? options_.before : options_.driver, options_.small);
    if (options_.causes && !cell.before) words.push_back("--causes");
    if (budget > 0 && !cell.swaps) words.insert(words.end(), {"--budget", std::to_string(budget)});
    std::filesystem::remove(folder_ + "/result");
    const std::string log = folder_ + "/log";
    const ChildRun ran =
        limit > 0 ? run_within({limit}, words, log, slowest_run_s).run : run_child(words, log, slowest_run_s);
    constexpr int killed = 128 + SIGKILL;
    if (cell.swaps && ran.status == killed) return {{"killed", true}};
    std::ifstream file(folder_ + "/result");
    auto json = nlohmann::json::parse(file, nullptr, false);
    if (ran.status != 0 || json.is_discarded())
      throw Failure(
          {.message = fmt::format("{} at {} % ended with status {}", program_.name, cell.percent, ran.status)});
    return json;
  }

  const Options& options_;
  const std::string folder_;
  const Program& program_;
  std::uint64_t own_memory_ = 0;  // bytes of the process beside its tensors; 0: not known
  std::vector<Cell> cells_;       // plain first
};

// The swap file that --kernel-swap asks for; nullptr, with a sentence and without that column, where there can be none.
std::unique_ptr<SwapFile> swap_file(Options& options) {
  if (!options.kernel_swap) return nullptr;
  try {
    if (run_within(1_GiB, {"/bin/true"}, "/dev/null", 60).charged == 0)
      throw Failure({.message = "the kernel does not tell how much memory a memory cgroup takes"});
    return std::make_unique<SwapFile>(options.slow, Bytes{options.swap_mib << 20});
  } catch (const Failure& failure) {
    options.kernel_swap = false;
    fmt::print("kernel swap: not measured, since {}\n", failure.what());
    return nullptr;
  }
}

int measure(Options options) {
  std::string folder = options.slow + "/vedette-irregular-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) throw Failure({.message = "no folder can be made in " + options.slow});
  const double load = load_per_core();
  const auto swap = swap_file(options);
  fmt::print("machine: {}, slow tier {}; {} rounds of {} steps, {} threads; load before the start {:.2f} a core{}\n\n",
             machine_line(), file_system_of(options.slow), options.rounds, options.steps, options.threads, load,
             load > busy_load ? ": BUSY MACHINE, the times below are worth little" : "");
  fmt::print("{:<20} {:>8} {:>10} {:>8} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>9} {:>8}\n", "MiB", "memory", "ms",
             "x plain", "in", "out", "free", "late", "room", "waits", "ms", "faults");
  nlohmann::ordered_json all = {{"machine", machine_line()},
                                {"load_per_core", load},
                                {"steps", options.steps},
                                {"rows", nlohmann::ordered_json::array()}};
  bool right = true;
  for (const Program& program : irregular_programs()) {
    const auto& wanted = options.programs;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), program.name) == wanted.end()) continue;
    Table table(options, folder, program);
    for (int round = 0; round < options.rounds; ++round) table.play();
    right = table.print() && right;
    table.add_to(all["rows"]);
    if (!options.json.empty()) std::ofstream(options.json) << all.dump(2);
  }
  std::filesystem::remove_all(folder);
  return right ? 0 : 1;
}

int irregular(int count, char** words) {
  Options options;
  options.driver = std::filesystem::read_symlink("/proc/self/exe");
  CLI::App app("Programs whose steps never repeat, plain and guarded in turns. Exit status 1: some bits differ.");
  app.add_option("--programs", options.programs, "some of them, by name")->delimiter(',');
  app.add_option("--budgets", options.budgets, "percent of the plain run's peak")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--rounds", options.rounds, "of all cells")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--steps", options.steps, "of a run; the first two do not count")
      ->capture_default_str()
      ->check(CLI::Range(4, 100000));
  app.add_option("--threads", options.threads, "of libtorch")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--slow", options.slow, "directory of the slow tier")
      ->capture_default_str()
      ->check(CLI::ExistingDirectory);
  app.add_option("--device", options.device, "cuda: a GPU's memory, and the host's is the slow tier")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--json", options.json, "write all rows to this file");
  app.add_option("--driver", options.driver, "the program that runs are made with: another version's, to compare");
  app.add_option("--before", options.before, "another version's program, whose cells come in turns with this one's")
      ->check(CLI::ExistingFile);
  app.add_flag("--kernel-swap", options.kernel_swap, "plain runs by the kernel's swap, too (root, a memory cgroup)");
  app.add_option("--swap", options.swap_mib, "size of the swap file, MiB")->capture_default_str();
  app.add_flag("--causes", options.causes, "count moves by their cause: an observer listens, which takes some time");
  app.add_flag("--small", options.small, "small shapes: to see that it works, not how fast");
  app.add_option("--one", options.one, "be one run of this program")->group("");
  app.add_option("--result", options.result, "of the one run")->group("");
  app.add_option("--budget", options.budget, "of the one run, in bytes; 0: plain")->group("");
  CLI11_PARSE(app, count, words);
  if (options.one.empty()) return measure(options);
  examples::prepare_device(options.device);
  if (options.device == "cuda") examples::use_deterministic_algorithms();
  for (const Program& program : irregular_programs())
    if (options.one == program.name) std::ofstream(options.result) << run_program(options, program);
  return 0;
}

}  // namespace
}  // namespace vedette::bench

int main(int count, char** words) {
  vedette::examples::count_allocations();  // before any guard
  vedette::resolve_vector_math();
  try {
    return vedette::bench::irregular(count, words);
  } catch (const std::exception& error) {
    fmt::print(stderr, "irregular: {}\n", error.what());
    return 1;
  }
}
