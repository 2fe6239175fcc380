// How close do plans come to a step without stalls? One line for each trace, budget and policy, beside a bound on any
// plan on that machine. The replay is exact, so one run is enough and a busy machine changes only the planning time.
//
//   plan_table [--read GB/s] [--write GB/s] [--granule BYTES] [--budget SHARE|BYTES]... [--noise] TRACE.json... | gpt |
//   resnet
//
// `gpt` and `resnet` are steps made here, with Adam, in units of 2 MiB. Their shapes are those of a GPT-2-like decoder
// (63 M parameters, batch 8 x 256) and of ResNet-18 (64 x 3 x 32 x 32).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "plan_shapes.h"
#include "vedette/bound.h"
#include "vedette/check.h"
#include "vedette/policy.h"
#include "vedette/replay.h"

namespace {

using namespace vedette;

struct Options {
  double read = 1.8, write = 1.8;  // GB/s
  std::uint64_t granule = std::uint64_t{2} << 20;
  std::vector<double> budgets;  // a share of the peak up to 1.5, else bytes
  bool noise = false;
  std::vector<std::string> traces;
};

double percent_of_ideal(const Replayed& replayed) {
  return 100.0 * static_cast<double>(replayed.ideal.value) / static_cast<double>(replayed.measured.time.value);
}

Machine machine_of(const Options& options, std::uint64_t capacity) {
  Machine machine;
  machine.tiers = {{.name = "fast", .capacity = {capacity}}, {.name = "slow", .capacity = {std::uint64_t{1} << 50}}};
  machine.links = {{.source = {1},
                    .target = {0},
                    .bytes_per_s = static_cast<std::uint64_t>(options.read * 1e9),
                    .latency = {20'000},
                    .shared = {}},
                   {.source = {0},
                    .target = {1},
                    .bytes_per_s = static_cast<std::uint64_t>(options.write * 1e9),
                    .latency = {20'000},
                    .shared = {}}};
  machine.granule = {options.granule};
  machine.interference_percent = 0;  // as the replay's percents count
  return machine;
}

// The plan under op times that differ by up to a fifth, and links that are 15 % slower than it was told.
void print_noisy(const Trace& trace, Machine machine, const Plan& plan) {
  Trace noisy = trace;
  std::uint64_t state = 7919;
  for (Op& op : noisy.ops) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    op.time.value = static_cast<std::int64_t>(static_cast<double>(op.time.value) *
                                              (0.8 + 0.4 * static_cast<double>(state >> 40) / (1 << 24)));
  }
  for (Link& link : machine.links) link.bytes_per_s = link.bytes_per_s / 100 * 85;
  const auto told = replay(noisy, machine, plan);
  const auto fresh = make_policy("vedette", 1)->prepare(noisy, machine);
  if (!told || !fresh) return;
  const auto best = replay(noisy, machine, *fresh);
  if (best)
    std::printf("    times +-20 %%, links 15 %% slower: %.1f %% of ideal; planned for exactly that: %.1f %%\n",
                percent_of_ideal(*told), percent_of_ideal(*best));
}

void print_line(const Trace& trace, const Machine& machine, std::string_view name, const Plan& plan, double plan_ms) {
  const auto replayed = replay(trace, machine, plan);
  if (!replayed) {
    std::printf("  %-10.*s %s\n", static_cast<int>(name.size()), name.data(), replayed.error().message.c_str());
    return;
  }
  std::printf(
      "  %-10.*s %6.1f %%  stall %8.1f ms  in %8.0f  out %8.0f  dropped %7.0f MB  late %4zu  unplanned %5u  planned in "
      "%5.0f "
      "ms\n",
      static_cast<int>(name.size()), name.data(), percent_of_ideal(*replayed),
      static_cast<double>(replayed->measured.stall.value) / 1e6, static_cast<double>(replayed->bytes_in.value) / 1e6,
      static_cast<double>(replayed->bytes_out.value) / 1e6, static_cast<double>(replayed->bytes_dropped.value) / 1e6,
      replayed->measured.late.size(), replayed->unplanned, plan_ms);
}

void print_trace(const Trace& trace, const Options& options) {
  const double peak = static_cast<double>(peak_bytes(trace).value);
  for (const double budget : options.budgets) {
    const Machine machine = machine_of(options, static_cast<std::uint64_t>(budget <= 1.5 ? peak * budget : budget));
    Nanoseconds ideal;
    for (const Op& op : trace.ops) ideal += op.time;
    const auto ideal_ns = static_cast<double>(ideal.value);
    std::printf("%s: %zu ops, %zu tensors, %.1f ms, peak %.0f MB, fast %.0f MB; no plan above %.1f %%\n",
                trace.name.c_str(), trace.ops.size(), trace.tensors.size(), ideal_ns / 1e6, peak / 1e6,
                static_cast<double>(machine.tiers[0].capacity.value) / 1e6,
                100.0 * ideal_ns / static_cast<double>(lower_bound(trace, machine).value));
    print_line(trace, machine, "demand", Plan{}, 0);
    for (const PolicyEntry& entry : policies()) {
      const std::unique_ptr<Policy> policy = entry.make(1);
      const auto began = std::chrono::steady_clock::now();
      const auto plan = policy->prepare(trace, machine);
      const double ms = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() * 1e3;
      if (!plan || plan->home.empty()) continue;  // too small for it
      const auto broken =
          plan->moves.empty() ? std::nullopt : check(trace, machine, *plan);  // one that only reacts plans nothing
      if (broken) std::printf("  %s BREAKS A RULE: %s\n", std::string(entry.name).c_str(), broken->message.c_str());
      print_line(trace, machine, entry.name, *plan, ms);
      if (options.noise && entry.name == "vedette") print_noisy(trace, machine, *plan);
    }
    std::fflush(stdout);
  }
}

Options read_options(int count, char** words) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const auto number = [&] { return i + 1 < count ? std::atof(words[++i]) : 0.0; };
    if (word == "--read")
      options.read = number();
    else if (word == "--write")
      options.write = number();
    else if (word == "--granule")
      options.granule = static_cast<std::uint64_t>(number());
    else if (word == "--budget")
      options.budgets.push_back(number());
    else if (word == "--noise")
      options.noise = true;
    else
      options.traces.push_back(word);
  }
  if (options.budgets.empty()) options.budgets = {0.5, 0.25, 0.2};
  if (options.traces.empty()) options.traces = {"gpt", "resnet"};
  return options;
}

}  // namespace

int main(int count, char** words) {
  const Options options = read_options(count, words);
  for (const std::string& name : options.traces) {
    if (name == "gpt" || name == "resnet") {
      print_trace(name == "gpt" ? bench::gpt_step() : bench::resnet_step(), options);
      continue;
    }
    std::ifstream file(name);
    std::stringstream text;
    text << file.rdbuf();
    const auto trace = parse_trace(text.str());
    if (!trace) {
      std::fprintf(stderr, "%s: %s\n", name.c_str(), trace.error().message.c_str());
      return 1;
    }
    print_trace(*trace, options);
  }
}
