// How much faster is training inside a budget than letting the kernel swap? The same program in the same memory cgroup
// with a swap file on the same disk: plain libtorch, whose memory the kernel swaps, against the guard, whose budget
// fits. Beside them plain without a limit.
//
// Each run is examples/train in a process of its own; the three follow each other in every round. Medians over all
// steps from the third on, and of a guarded run over those that ran by a plan. The budget is the group's limit, less a
// session's overhead, less the program's own memory. That is measured first: the most that is charged for a plain run
// of a model of a few bytes.
//
// Needs root, a memory cgroup and swapon (kernel_swap.h).
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "kernel_swap.h"
#include "machine.h"
#include "train_cells.h"
#include "vedette/session.h"

namespace vedette::bench {
namespace {

struct Options {
  std::string train, model = "resnet18", slow = ".";
  std::uint64_t limit_mib = 400, budget_mib = 0, swap_mib = 2048;
  int rounds = 3, steps = 9, threads = 2;
};

constexpr double slowest_run_s = 1800;

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Run {
  std::string name;
  bool limited = false;
  Bytes budget;  // 0: plain
  std::vector<double> step_ms;
  std::vector<std::uint32_t> losses;
  std::uint64_t charged = 0, swapped = 0;  // the most of all runs; swapped: at the end
  double others = 0;
};

class Comparison {
 public:
  Comparison(const Options& options, const std::string& folder) : options_(options), folder_(folder) {}

  // Runs `words` in a group of its own with swap, or in none; true if it ended well. What was charged goes to
  // `charged`.
  bool child(std::vector<std::string> words, std::optional<Bytes> limit, std::uint64_t& charged, double& others) {
    LimitedRun ran;
    if (limit) {
      ran = run_within(*limit, std::move(words), folder_ + "/log", slowest_run_s);
    } else {
      ran.run = run_child(std::move(words), folder_ + "/log", slowest_run_s);
    }
    charged = std::max(charged, ran.charged);
    others = ran.run.others_cores;
    return ran.run.status == 0;
  }

  std::vector<std::string> train(const std::string& model, int steps) const {
    return {options_.train,
            "--model",
            model,
            "--steps",
            std::to_string(steps),
            "--threads",
            std::to_string(options_.threads),
            "--json",
            folder_ + "/result"};
  }

  Bytes own_memory() {
    std::uint64_t charged = 0;
    double others = 0;
    auto words = train("mlp", 2);
    words.insert(words.end(), {"--plain", "--small"});
    if (!child(words, 4_GiB, charged, others))
      throw Failure({.message = "examples/train cannot run in a memory cgroup: " + contents(folder_ + "/log")});
    return {charged};
  }

  void play(Run& run) {
    auto words = train(options_.model, options_.steps);
    if (run.budget.value == 0) {
      words.push_back("--plain");
    } else {
      words.insert(words.end(), {"--fast-memory", std::to_string(run.budget.value), "--slow", "nvme:" + options_.slow});
    }
    std::filesystem::remove(folder_ + "/result");
    const auto limit = run.limited ? std::optional(Bytes{options_.limit_mib << 20}) : std::nullopt;
    const bool ended = child(words, limit, run.charged, run.others);
    const auto json = nlohmann::json::parse(contents(folder_ + "/result"), nullptr, false);
    if (!ended || json.is_discarded())
      throw Failure({.message = run.name + " did not end well: " + contents(folder_ + "/log")});
    const auto times = json.at("step_ns").get<std::vector<std::uint64_t>>();
    for (std::size_t i = std::max<std::size_t>(3, json.at("planned_from").get<std::size_t>()); i < times.size(); ++i)
      run.step_ms.push_back(static_cast<double>(times[i]) / 1e6);
    const auto losses = json.at("losses").get<std::vector<std::uint32_t>>();
    if (!run.losses.empty() && run.losses != losses)
      throw Failure({.message = run.name + " gave other losses in another round"});
    run.losses = losses;
    fmt::print(stderr, "{:<20} {:8.0f} ms (median so far), others {:.2f} cores\n", run.name, spread(run.step_ms).median,
               run.others);
  }

 private:
  const Options& options_;
  std::string folder_;
};

void print(const std::vector<Run>& runs) {
  const double free = spread(runs[0].step_ms).median, swapped = spread(runs[1].step_ms).median,
               guarded = spread(runs[2].step_ms).median;
  fmt::print("\n{:<20} {:>10} {:>21} {:>12} {:>14}\n", "", "step, ms", "quartiles", "x unlimited", "charged, MiB");
  for (const Run& run : runs) {
    const Spread s = spread(run.step_ms);
    fmt::print("{:<20} {:>10.0f} {:>10.0f} {:>10.0f} {:>12.2f} {:>14}\n", run.name, s.median, s.lower, s.upper,
               s.median / free,
               run.limited ? fmt::format("{:.0f}", static_cast<double>(run.charged) / (1 << 20)) : "-");
  }
  fmt::print(
      "\nguarded is {:.2f} x as fast as plain with kernel swap, which is {:.2f} x slower than without a limit; losses "
      "{}\n",
      swapped / guarded, swapped / free,
      runs[0].losses == runs[2].losses && runs[0].losses == runs[1].losses ? "equal, bit by bit" : "DIFFER");
}

int measure(const Options& options) {
  if (::access(options.train.c_str(), X_OK) != 0)
    throw Failure({.message = options.train + " is not there: build it, or tell with --train where it is"});
  std::string folder = options.slow + "/vedette-swap-bench-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) throw Failure({.message = "no folder can be made in " + options.slow});
  struct Removed {
    const std::string& path;
    ~Removed() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  } const removed{folder};
  const SwapFile swap(options.slow, {options.swap_mib << 20});
  Comparison comparison(options, folder);
  const Bytes own = comparison.own_memory(), limit{options.limit_mib << 20};
  Bytes budget{options.budget_mib << 20};
  if (budget.value == 0) {
    if (limit <= own + session_overhead)
      throw Failure({.message = fmt::format("--limit must exceed {} MiB, which the program and a session need",
                                            (own + session_overhead).value >> 20)});
    budget = limit - own - session_overhead;
  }
  const double load = load_per_core();
  fmt::print("machine: {}, huge pages: {}\nslow tier and swap file: {}, {}\n", machine_line(), huge_pages(),
             options.slow, file_system_of(options.slow));
  fmt::print(
      "{}: memory cgroup of {} MiB; the program's own {} MiB, {} of overhead, budget {}; {} rounds of {} steps; load "
      "before the start {:.2f} a core{}\n",
      options.model, options.limit_mib, own.value >> 20, session_overhead.value >> 20, budget.value >> 20,
      options.rounds, options.steps, load, load > busy_load ? ": BUSY MACHINE, the times below are worth little" : "");
  std::fflush(stdout);
  std::vector<Run> runs{{.name = "plain, no limit"},
                        {.name = "plain, kernel swap", .limited = true},
                        {.name = "guarded", .limited = true, .budget = budget}};
  for (int round = 0; round < options.rounds; ++round) {
    for (Run& run : runs) comparison.play(run);
  }
  print(runs);
  return runs[0].losses == runs[1].losses && runs[0].losses == runs[2].losses ? 0 : 1;
}

int vs_kernel_swap(int count, char** words) {
  Options options;
  options.train = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "examples" / "train";
  CLI::App app(
      "Training inside a budget against the kernel's swap, in one memory cgroup. Exit status 1: a run failed, or "
      "losses differ.");
  app.add_option("--model", options.model, "a model of examples/train")->capture_default_str();
  app.add_option("--limit", options.limit_mib, "of the memory cgroup, MiB")->capture_default_str();
  app.add_option("--fast-memory", options.budget_mib, "the budget, MiB; 0: what the limit leaves")
      ->capture_default_str();
  app.add_option("--swap", options.swap_mib, "size of the swap file, MiB")->capture_default_str();
  app.add_option("--rounds", options.rounds, "how often each is run")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--steps", options.steps, "of a run; the first three, and all before the plan, do not count")
      ->capture_default_str()
      ->check(CLI::Range(4, 100000));
  app.add_option("--threads", options.threads, "threads of libtorch")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--slow", options.slow, "directory of the slow tier and of the swap file")
      ->capture_default_str()
      ->check(CLI::ExistingDirectory);
  app.add_option("--train", options.train, "the driver of the runs")->capture_default_str();
  CLI11_PARSE(app, count, words);
  return measure(options);
}

}  // namespace
}  // namespace vedette::bench

int main(int count, char** words) {
  try {
    return vedette::bench::vs_kernel_swap(count, words);
  } catch (const std::exception& error) {
    fmt::print(stderr, "vs_kernel_swap: {}\n", error.what());
    return 1;
  }
}
