// How long does the simulator take to replay a step? Wanted: the 7,926 ops of lstm-128 in less than 50 ms.
//
//   replay_time TRACE... [--fast PERCENT] [--policy NAME] [--rounds N]
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>

#include "vedette/machine.h"
#include "vedette/policy.h"
#include "vedette/replay.h"

namespace {

using namespace vedette;

struct Quartiles {
  double lower = 0, median = 0, upper = 0;
};

template <class Work>
Quartiles milliseconds(std::uint32_t rounds, Work&& work) {
  std::vector<double> took;
  for (std::uint32_t r = 0; r < rounds; ++r) {
    const auto began = std::chrono::steady_clock::now();
    work();
    took.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() * 1e3);
  }
  std::sort(took.begin(), took.end());
  return {took[took.size() / 4], took[took.size() / 2], took[took.size() * 3 / 4]};
}

// One step alone, and the three of which `vedette replay` measures the last; the same plan each time.
void time_replay(const Trace& trace, const PolicyEntry& entry, double percent, std::uint32_t rounds) {
  Machine machine = machine_presets().front().make();
  machine.tiers[0].capacity = {
      static_cast<std::uint64_t>(static_cast<double>(peak_bytes(trace).value) * percent / 100)};
  const auto plan = entry.make(1)->prepare(trace, machine);
  if (!plan) return fmt::print("{}: {}\n", trace.name, plan.error().message);
  for (const std::uint32_t steps : {1U, 3U}) {
    const auto took = milliseconds(rounds, [&] { (void)replay(trace, machine, *plan, {.steps = steps}); });
    fmt::print(
        "{:<16} {:>6} ops {:>6} moves at {:>3.0f} %, {} step{}: {:.2f} ms ({:.2f} to {:.2f}), {:.2f} us an op of a "
        "step\n",
        trace.name, trace.ops.size(), plan->moves.size(), percent, steps, steps == 1 ? " " : "s", took.median,
        took.lower, took.upper, took.median * 1e3 / static_cast<double>(trace.ops.size() * steps));
  }
}

}  // namespace

int main(int count, char** words) {
  std::vector<std::string> files;
  std::string policy = "vedette";
  std::vector<double> percents = {60, 30};
  std::uint32_t rounds = 21;
  CLI::App app("Times the simulator.");
  app.add_option("trace", files)->required();
  app.add_option("--policy", policy);
  app.add_option("--fast", percents, "Percent of the peak")->delimiter(',');
  app.add_option("--rounds", rounds)->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, count, words);
  for (const std::string& file : files) {
    std::ifstream in(file, std::ios::binary);
    const auto trace = parse_trace(std::string(std::istreambuf_iterator<char>(in), {}));
    if (!trace) return fmt::print(stderr, "{}: {}\n", file, trace.error().message), 1;
    for (const PolicyEntry& entry : policies()) {
      if (entry.name != policy) continue;
      for (const double percent : percents) time_replay(*trace, entry, percent, rounds);
    }
  }
}
