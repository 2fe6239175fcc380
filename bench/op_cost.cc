// What does an operator cost under a guard where every operand is resident and the plan has nothing to do?
//
// A network of many small layers trains with memory to spare, so that nothing moves. Each run is a process of its own;
// in every round four follow each other: plain, plain with a callback of libtorch's that does nothing, guarded with all
// ops heard, and guarded. The last is what a program has: its session rests after some steps, and libtorch lists no
// operator's inputs. Where something moves ops are heard, and the callback is the ideal.
//
// Figures are medians over rounds of medians over steps. A guarded run counts the steps from the thirtieth on, by the
// plan or at rest. The parts of an op's cost are measured beside it, without libtorch: Session::op of the same session
// with operands on pages of their own, with small ones, and a tensor's birth and death.
#include <ATen/record_function.h>
#include <fmt/core.h>
#include <torch/nn.h>
#include <torch/optim.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "machine.h"
#include "train_cells.h"
#include "vedette/torch.h"

namespace vedette::bench {
namespace {

namespace nn = torch::nn;
using Clock = std::chrono::steady_clock;

struct Options {
  int rounds = 11, steps = 60, layers = 200;
  std::int64_t width = 64, batch = 8;
  std::string json, one, result;  // one: this process is a run
};

constexpr int warm_up = 30;
constexpr double slowest_run_s = 600;
const std::vector<std::string> kinds{"plain", "callback", "heard", "guarded"};

double ns_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

nn::Sequential network(const Options& options) {
  nn::Sequential net;
  for (int i = 0; i < options.layers; ++i) {
    net->push_back(nn::Linear(options.width, options.width));
    net->push_back(nn::ReLU());
  }
  return net;
}

// --- one run ---------------------------------------------------------------------------------------------------------

// What an op of the session costs with these operands, in a step that repeats.
double session_op_ns(Session& session, const std::vector<const void*>& operands) {
  constexpr int ops = 2000, repeats = 6;
  std::vector<double> each;
  for (int i = 0; i < repeats; ++i) {
    const auto step = session.step();
    const auto began = Clock::now();
    for (int op = 0; op < ops; ++op) {
      const auto scope = session.op("aten::addmm", operands, {});
    }
    each.push_back(ns_since(began) / ops);
  }
  return spread({each.begin() + repeats / 2, each.end()}).median;
}

double birth_and_death_ns(Session& session, Bytes bytes) {
  constexpr int births = 2000;
  const auto began = Clock::now();
  for (int i = 0; i < births; ++i) Session::release(session.allocate({.bytes = bytes}).value());
  return ns_since(began) / births;
}

void add_parts(Session& session, nlohmann::json& result) {
  std::vector<const void*> large, small;
  for (int i = 0; i < 3; ++i) large.push_back(session.allocate({.bytes = 256_KiB, .persistent = true}).value());
  for (int i = 0; i < 3; ++i) small.push_back(session.allocate({.bytes = 2_KiB, .persistent = true}).value());
  result["parts_ns"] = {{"op of three tensors", session_op_ns(session, large)},
                        {"op of three small tensors", session_op_ns(session, small)},
                        {"birth and death of 256 KiB", birth_and_death_ns(session, 256_KiB)},
                        {"birth and death of 2 KiB", birth_and_death_ns(session, 2_KiB)}};
}

void run_one(const Options& options) {
  at::set_num_threads(1);
  torch::manual_seed(1);
  std::optional<Guard> guard;
  const bool heard = options.one == "heard";
  if (heard || options.one == "guarded") guard.emplace(GuardOptions{.fast_memory = 1_GiB, .slow = "host"});
  if (options.one == "callback")
    at::addGlobalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction&) { return std::unique_ptr<at::ObserverContext>(); })
            .needsInputs(true)
            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  nn::Sequential net = network(options);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(1e-3));
  if (guard) {
    guard->watch(*net);
    guard->watch(sgd);
  }
  const at::Tensor input = torch::randn({options.batch, options.width});
  const auto train = [&] {
    const at::Tensor loss = net->forward(input).square().mean();
    sgd.zero_grad();
    loss.backward();
    sgd.step();
  };
  std::vector<double> step_ns;
  std::uint64_t ops = 0;
  for (int i = 0; i < options.steps + warm_up; ++i) {
    const std::uint64_t before = guard ? guard->counters().ops : 0;
    if (heard) guard->session().hear_ops();
    const auto began = Clock::now();
    if (guard) {
      const auto step = guard->step();
      train();
    } else {
      train();
    }
    if (i >= warm_up) step_ns.push_back(ns_since(began));
    if (guard) ops = guard->counters().ops - before;
  }
  nlohmann::json result = {{"step_ns", spread(step_ns).median}, {"ops", ops}};
  if (guard) {
    result["moved"] = (guard->counters().bytes_in + guard->counters().bytes_out).value;
    result["rests"] = !guard->session().wants_ops();
    guard->session().hear_ops();
    add_parts(guard->session(), result);
  }
  std::ofstream(options.result) << result;
}

// --- all runs --------------------------------------------------------------------------------------------------------

nlohmann::json run(const Options& options, const std::string& kind, const std::string& folder) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe"), result = folder + "/result";
  std::filesystem::remove(result);
  const auto word = [](auto number) { return std::to_string(number); };
  const ChildRun child =
      run_child({self, "--one", kind, "--result", result, "--steps", word(options.steps), "--layers",
                 word(options.layers), "--width", word(options.width), "--batch", word(options.batch)},
                folder + "/log", slowest_run_s);
  std::ifstream file(result);
  auto json = nlohmann::json::parse(file, nullptr, false);
  if (child.status != 0 || json.is_discarded())
    throw Failure({.message = "the " + kind + " run ended with status " + std::to_string(child.status)});
  return json;
}

struct Runs {
  std::map<std::string, std::vector<double>> step_ns, parts_ns;
  std::vector<double> ratio, heard_ratio, libtorch_ns, heard_ns, ours_ns;  // of each round; per op
  std::uint64_t ops = 0, moved = 0;
  bool rests = true;  // each guarded run, at its end

  void add(const std::map<std::string, nlohmann::json>& round) {
    std::map<std::string, double> step;
    for (const auto& [kind, json] : round) step_ns[kind].push_back(step[kind] = json.at("step_ns").get<double>());
    const auto& heard = round.at("heard");
    ops = heard.at("ops").get<std::uint64_t>();
    moved += heard.at("moved").get<std::uint64_t>() + round.at("guarded").at("moved").get<std::uint64_t>();
    rests = rests && round.at("guarded").at("rests").get<bool>();
    for (const auto& [part, ns] : heard.at("parts_ns").items()) parts_ns[part].push_back(ns.get<double>());
    ratio.push_back(step["plain"] / step["guarded"]);
    heard_ratio.push_back(step["plain"] / step["heard"]);
    libtorch_ns.push_back((step["callback"] - step["plain"]) / static_cast<double>(ops));
    heard_ns.push_back((step["heard"] - step["callback"]) / static_cast<double>(ops));
    ours_ns.push_back((step["guarded"] - step["plain"]) / static_cast<double>(ops));
  }
};

struct Row {
  std::string what;
  std::vector<double> values;  // of each round
  std::string unit;
  double wanted = 0;  // at most; 0: no bar
};

std::vector<Row> rows_of(const Runs& runs) {
  std::vector<Row> rows;
  for (const std::string& kind : kinds) {
    std::vector<double> us;
    for (const double ns : runs.step_ns.at(kind)) us.push_back(ns / 1e3);
    rows.push_back({.what = "step, " + kind, .values = us, .unit = "us"});
  }
  rows.push_back({.what = "plain / guarded", .values = runs.ratio, .unit = "x"});
  rows.push_back({.what = "plain / heard", .values = runs.heard_ratio, .unit = "x"});
  rows.push_back({.what = "an op, libtorch's listing", .values = runs.libtorch_ns, .unit = "ns"});
  rows.push_back({.what = "an op, heard, on top of that", .values = runs.heard_ns, .unit = "ns"});
  rows.push_back({.what = "an op, guarded, on top of plain", .values = runs.ours_ns, .unit = "ns", .wanted = 300});
  for (const auto& [part, ns] : runs.parts_ns)
    rows.push_back({.what = part, .values = ns, .unit = "ns, without libtorch"});
  return rows;
}

void print(const Options& options, const Runs& runs) {
  fmt::print(
      "machine: {}, load {:.2f} a core\n{} layers of {} by {}, batch {}: {} ops a step, {} bytes moved; guarded, "
      "sessions {}; {} rounds\n\n",
      machine_line(), load_per_core(), options.layers, options.width, options.width, options.batch, runs.ops,
      runs.moved, runs.rests ? "rest" : "do NOT rest", options.rounds);
  fmt::print("{:<34} {:>9} {:>9} {:>9}\n", "", "median", "lower", "upper");
  for (const Row& row : rows_of(runs)) {
    const Spread s = spread(row.values);
    fmt::print("{:<34} {:>9.2f} {:>9.2f} {:>9.2f}  {}{}\n", row.what, s.median, s.lower, s.upper, row.unit,
               row.wanted > 0 ? fmt::format(" (wanted: {:.0f})", row.wanted) : "");
  }
}

void write(const Options& options, const Runs& runs) {
  nlohmann::ordered_json all = {{"machine", machine_line()}, {"load_per_core", load_per_core()},
                                {"layers", options.layers},  {"width", options.width},
                                {"batch", options.batch},    {"ops", runs.ops},
                                {"bytes_moved", runs.moved}, {"rests", runs.rests},
                                {"rounds", options.rounds},  {"rows", nlohmann::ordered_json::array()}};
  for (const Row& row : rows_of(runs)) {
    const Spread s = spread(row.values);
    all["rows"].push_back({{"what", row.what},
                           {"unit", row.unit},
                           {"median", s.median},
                           {"lower", s.lower},
                           {"upper", s.upper},
                           {"wanted", row.wanted > 0 ? nlohmann::ordered_json(row.wanted) : nlohmann::ordered_json()},
                           {"rounds", row.values}});
  }
  std::ofstream(options.json) << all.dump(2) << "\n";
}

int measure(const Options& options) {
  std::string folder = "/tmp/vedette-op-cost-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) throw Failure({.message = "no folder can be made in /tmp"});
  Runs runs;
  for (int round = 0; round < options.rounds; ++round) {
    std::map<std::string, nlohmann::json> results;
    for (const std::string& kind : kinds) results[kind] = run(options, kind, folder);
    runs.add(results);
  }
  std::filesystem::remove_all(folder);
  print(options, runs);
  if (!options.json.empty()) write(options, runs);
  return 0;
}

int op_cost(int count, char** words) {
  Options options;
  CLI::App app("The cost of an operator that moves nothing: plain, with an empty callback, heard, guarded, in turns.");
  app.add_option("--rounds", options.rounds, "of the four")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--steps", options.steps, "that count, of a run")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--layers", options.layers, "of the network")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--width", options.width, "of a layer")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--batch", options.batch, "rows of the input")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--json", options.json, "write all rows to this file");
  app.add_option("--one", options.one, "be one run")->group("")->check(CLI::IsMember(kinds));
  app.add_option("--result", options.result, "of the one run")->group("");
  CLI11_PARSE(app, count, words);
  if (options.one.empty()) return measure(options);
  run_one(options);
  return 0;
}

}  // namespace
}  // namespace vedette::bench

int main(int count, char** words) {
  try {
    return vedette::bench::op_cost(count, words);
  } catch (const std::exception& error) {
    fmt::print(stderr, "op_cost: {}\n", error.what());
    return 1;
  }
}
