// How long does planning a step take, and how does that grow with its ops and tensors, up to a million tensors?
//
//   plan_time [--policies vedette,sentinel] [--tensors 2000,20000,200000,1000000] [--budget 30] [--limit SECONDS]
//   [--rounds N]
//   plan_time TRACE --alike OTHER_SIZE,ANOTHER_SIZE
//
// Steps are made here. A layer has three ops (forward, backward, update) and six tensors (weight, two moments,
// activation, gradient, gradient of the weight). Small ops beside them read and write one activation, so that there are
// half as many ops as tensors. Sizes and times vary. Planning alone is timed, by the processor's clock and by the
// wall's, for a fast tier of `--budget` percent of the peak. Each line has the exponent k of n^k between it and the
// size before: 1 is linear, 2 quadratic. A policy that took more of the processor than the limit is not asked for the
// next size. The ideal beside it: one pass over the accesses.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "policy/vedette/likeness.h"
#include "vedette/machine.h"
#include "vedette/policy.h"
#include "vedette/replay.h"

namespace {

using namespace vedette;

struct Options {
  std::vector<std::string> policies, traces, alike;
  std::vector<std::uint32_t> tensors = {2'000, 20'000, 200'000, 1'000'000};
  double budget = 30, limit = 20;
  std::uint32_t rounds = 1;
};

class Maker {
 public:
  Trace make(std::uint32_t tensors) {
    trace_ = {.name = fmt::format("{} tensors", tensors), .source = "bench/plan_time", .device = "none"};
    const std::uint32_t layers = std::max(1U, tensors / 8);
    std::vector<std::uint32_t> weights, moments, inputs;
    std::uint32_t x = tensor("x", 4 << 20, TensorKind::input, true);
    for (std::uint32_t l = 0; l < layers; ++l) {
      weights.push_back(tensor("w", 1 << 20, TensorKind::weight, true));
      moments.push_back(tensor("m", 1 << 20, TensorKind::optimizer, true));
      moments.push_back(tensor("v", 1 << 20, TensorKind::optimizer, true));
      inputs.push_back(x);
      const std::uint32_t inner = tensor("a", 4 << 20, TensorKind::activation, false);
      op("linear", l, Phase::forward, {x, weights[l]}, {inner});
      x = tensor("x", 4 << 20, TensorKind::activation, false);
      op("relu", l, Phase::forward, {inner}, {x});
    }
    std::uint32_t g = tensor("g", 4 << 20, TensorKind::gradient, false);
    op("loss", layers - 1, Phase::forward, {x}, {g});
    for (std::uint32_t l = layers; l-- > 0;) {
      const std::uint32_t dw = tensor("dw", 1 << 20, TensorKind::gradient, false),
                          dx = tensor("g", 4 << 20, TensorKind::gradient, false);
      op("linear_backward", l, Phase::backward, {g, inputs[l], weights[l]}, {dw, dx});
      g = dx;
      op("update", l, Phase::optimizer, {dw, weights[l], moments[2 * l], moments[2 * l + 1]},
         {weights[l], moments[2 * l], moments[2 * l + 1]});
    }
    return std::move(trace_);
  }

 private:
  std::uint64_t draw(std::uint64_t below) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state_ >> 33) % below;
  }
  std::uint32_t tensor(const char* name, std::uint64_t bytes, TensorKind kind, bool persistent) {
    trace_.tensors.push_back({.name = fmt::format("{}{}", name, trace_.tensors.size()),
                              .bytes = {bytes / 4 + draw(bytes)},
                              .kind = kind,
                              .persistent = persistent});
    return static_cast<std::uint32_t>(trace_.tensors.size() - 1);
  }
  void op(const char* name, std::uint32_t layer, Phase phase, std::vector<std::uint32_t> reads,
          std::vector<std::uint32_t> writes) {
    while (trace_.layers.size() <= layer)
      trace_.layers.push_back({.name = fmt::format("layer{}", trace_.layers.size())});
    Op made{.name = name,
            .layer = LayerIndex{layer},
            .phase = phase,
            .time = {static_cast<std::int64_t>(50'000 + draw(200'000))},
            .workspace = {draw(1 << 20)},
            .reads = {},
            .writes = {},
            .frees = {}};
    std::sort(reads.begin(), reads.end());
    std::sort(writes.begin(), writes.end());
    for (const std::uint32_t t : reads) made.reads.push_back({t});
    for (const std::uint32_t t : writes) made.writes.push_back({t});
    trace_.ops.push_back(std::move(made));
  }

  Trace trace_;
  std::uint64_t state_ = 7919;
};

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

struct Took {
  double processor = 0, wall = 0;  // seconds, medians
};

template <class Work>
Took timed(std::uint32_t rounds, Work&& work) {
  std::vector<double> processor, wall;
  for (std::uint32_t r = 0; r < rounds; ++r) {
    const auto began = std::chrono::steady_clock::now();
    const double before = processor_seconds();
    work();
    processor.push_back(processor_seconds() - before);
    wall.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  }
  std::sort(processor.begin(), processor.end());
  std::sort(wall.begin(), wall.end());
  return {processor[processor.size() / 2], wall[wall.size() / 2]};
}

struct Ran {  // of one policy, at the size before
  std::size_t tensors = 0;
  double seconds = 0;
  bool over = false;
};

void print_line(std::string_view name, const Trace& trace, const Took& took, Ran& before, const std::string& said) {
  const double k = before.tensors == 0
                       ? 0
                       : std::log(std::max(1e-9, took.processor) / std::max(1e-9, before.seconds)) /
                             std::log(static_cast<double>(trace.tensors.size()) / static_cast<double>(before.tensors));
  fmt::print("  {:<16} {:>10.1f} ms {:>10.1f} ms {:>7}  {}\n", name, took.processor * 1e3, took.wall * 1e3,
             before.tensors == 0 ? "" : fmt::format("n^{:.2f}", k), said);
  std::fflush(stdout);
  before = {trace.tensors.size(), took.processor, before.over};
}

std::vector<PolicyEntry> chosen(const Options& options) {
  std::vector<PolicyEntry> entries;
  for (const PolicyEntry& entry : policies()) {
    if (options.policies.empty() ||
        std::find(options.policies.begin(), options.policies.end(), entry.name) != options.policies.end())
      entries.push_back(entry);
  }
  return entries;
}

Result<Trace> read(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return parse_trace(std::string(std::istreambuf_iterator<char>(in), {}));
}

// From plans for other sizes, which are searched for before the clock is asked.
void plan_by_likeness(const Trace& trace, const Machine& machine, const Options& options) {
  std::vector<Trace> traces;
  std::vector<Plan> plans;
  for (const std::string& file : options.alike) {
    traces.push_back(read(file).value());
    plans.push_back(make_policy("vedette", 1)->prepare(traces.back(), machine).value());
  }
  std::vector<planning::PlannedStep> planned;
  for (std::size_t k = 0; k < traces.size(); ++k) planned.push_back({&traces[k], &plans[k]});
  Result<Plan> plan = Plan{};
  const Took took = timed(options.rounds, [&] { plan = planning::plan_by_likeness(planned, trace, machine); });
  Ran none;
  const double ops = static_cast<double>(trace.ops.size());
  print_line("(by likeness)", trace, took, none,
             plan ? fmt::format("{:.1f} us an op of the processor, the judge included", took.processor * 1e6 / ops)
                  : plan.error().message);
}

void plan_step(const Trace& trace, const Options& options, const std::vector<PolicyEntry>& entries,
               std::vector<Ran>& ran, Ran& floor) {
  Machine machine = machine_presets().front().make();
  machine.tiers[0].capacity =
      std::max(largest_op_bytes(trace),
               Bytes{static_cast<std::uint64_t>(static_cast<double>(peak_bytes(trace).value) * options.budget / 100)});
  machine.tiers[1].capacity = machine.tiers[2].capacity = {std::uint64_t{1} << 56};
  fmt::print(
      "{}: {} ops, {} tensors, fast memory {:.0f} % of the peak; processor and wall time of planning\n", trace.name,
      trace.ops.size(), trace.tensors.size(),
      100.0 * static_cast<double>(machine.tiers[0].capacity.value) / static_cast<double>(peak_bytes(trace).value));
  print_line("(one pass)", trace,
             timed(options.rounds,
                   [&] {
                     if (lifetimes(trace).empty()) std::abort();
                   }),
             floor, "the lifetimes of all tensors");
  for (std::size_t e = 0; e < entries.size(); ++e) {
    if (ran[e].over) continue;
    Result<Plan> plan = Plan{};
    const Took took = timed(options.rounds, [&] { plan = entries[e].make(1)->prepare(trace, machine); });
    std::string said = plan ? fmt::format("{} moves", plan->moves.size()) : plan.error().message.substr(0, 90);
    if (plan)
      for (const std::string& reason : plan->reasons) said += "; " + reason;
    print_line(entries[e].name, trace, took, ran[e], said);
    ran[e].over = took.processor > options.limit;
  }
  if (!options.alike.empty()) plan_by_likeness(trace, machine, options);
}

}  // namespace

int main(int count, char** words) {
  Options options;
  CLI::App app("Times planning.");
  app.add_option("trace", options.traces, "Traces to plan instead of made ones");
  app.add_option("--alike", options.alike, "Traces of the same ops with other sizes, from whose plans one is made")
      ->delimiter(',');
  app.add_option("--policies", options.policies)->delimiter(',');
  app.add_option("--tensors", options.tensors)->delimiter(',');
  app.add_option("--budget", options.budget, "Fast memory, percent of the peak");
  app.add_option("--limit", options.limit, "Seconds of processor time after which a policy is asked no more");
  app.add_option("--rounds", options.rounds, "Medians of so many")->check(CLI::Range(1, 100));
  CLI11_PARSE(app, count, words);
  const std::vector<PolicyEntry> entries = chosen(options);
  std::vector<Ran> ran(entries.size());
  Ran floor;
  for (const std::string& file : options.traces) {
    const auto trace = read(file);
    if (!trace) return fmt::print(stderr, "{}: {}\n", file, trace.error().message), 1;
    ran.assign(entries.size(), {});
    floor = {};
    plan_step(*trace, options, entries, ran, floor);
  }
  if (!options.traces.empty()) return 0;
  for (const std::uint32_t tensors : options.tensors) plan_step(Maker().make(tensors), options, entries, ran, floor);
}
