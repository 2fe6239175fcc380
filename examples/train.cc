// Trains a model of examples/models, plain or inside a memory budget, or both to compare them.
//
//   train --model resnet18 --fast-memory 25% --slow nvme:/tmp           inside a quarter of the plain run's memory
//   train --model gpt --compare --fast-memory 500MiB --json table.json   next to a plain run
//   train --script FILE.pt --compare                                    a model that Python exported
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "children.h"
#include "models/model.h"
#include "models/state.h"
#include "profiler/recorder.h"
#include "run.h"
#include "sizes.h"
#include "vedette/policy.h"
#include "vedette/session.h"

namespace vedette::examples {
namespace {

struct Arguments {
  RunOptions run;
  std::string fast_memory = "25%", table_memory;
  bool plain = false, compare = false;
  std::string json;
};

// Refuses a file that cannot be written before hours of training, not after. An existing file stays.
void require_writable(const std::string& path) {
  if (path.empty()) return;
  const bool existed = std::filesystem::exists(path);
  if (!std::ofstream(path, std::ios::app)) throw std::runtime_error(path + " cannot be written; name another file");
  if (!existed) std::filesystem::remove(path);
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << '\n';
  if (!file.flush()) throw std::runtime_error(path + " cannot be written");
}

std::vector<std::string> words_of(const RunOptions& options) {
  std::vector<std::string> words = {"train",
                                    "--model",
                                    options.model,
                                    "--device",
                                    options.device,
                                    "--steps",
                                    std::to_string(options.steps),
                                    "--batch",
                                    std::to_string(options.batch),
                                    "--seed",
                                    std::to_string(options.seed),
                                    "--threads",
                                    std::to_string(options.threads)};
  if (!options.script.empty()) words.insert(words.end(), {"--script", options.script});
  if (options.small) words.push_back("--small");
  if (options.made_up_data) words.push_back("--made-up-data");
  if (options.deterministic) words.push_back("--deterministic");
  if (options.amp) words.push_back("--amp");
  if (options.step_in_backward) words.push_back("--step-in-backward");
  if (options.shard_optimizer) words.push_back("--shard-optimizer");
  if (options.ranks > 1) words.insert(words.end(), {"--lag", std::to_string(options.lag)});
  if (!options.checkpoint.empty())
    words.insert(words.end(), {"--checkpoint", options.checkpoint, "--every", std::to_string(options.every)});
  if (options.state) words.push_back("--state");
  if (!options.guarded) words.push_back("--plain");
  if (options.guarded) {
    for (const std::string& word :
         {std::string("--fast-memory"), std::to_string(options.fast_memory), std::string("--policy"), options.policy,
          std::string("--fast"), options.fast, std::string("--slow"), options.slow, std::string("--chunk"),
          std::to_string(options.chunk), std::string("--tracker"), options.tracker}) {
      words.push_back(word);
    }
    if (!options.profile.empty()) words.insert(words.end(), {"--profile", options.profile});
    if (options.checksums) words.push_back("--checksums");
    if (options.warmup_steps != 1) words.insert(words.end(), {"--warmup", std::to_string(options.warmup_steps)});
    for (const auto& [name, word] : {std::pair{"--max-writes", options.max_writes}, {"--share", options.share}})
      if (!word.empty()) words.insert(words.end(), {name, word});
    if (options.table_memory > 0) words.insert(words.end(), {"--table-memory", std::to_string(options.table_memory)});
    if (options.recompute) words.push_back("--recompute");
    if (options.recompute_all) words.push_back("--recompute-all");
    if (!options.record.empty())
      words.insert(words.end(), {"--record", options.record, "--plain-step-ns", std::to_string(options.plain_step_ns)});
    if (!options.trace.empty()) words.insert(words.end(), {"--trace", options.trace});
  }
  return words;
}

// A run in processes of its own, one for each rank.
std::vector<RunResult> run_in_children(const RunOptions& options) {
  std::vector<RunResult> results;
  for (const std::string& text :
       run_children(words_of(options), options.ranks, options.guarded ? "guarded" : "plain")) {
    results.push_back(nlohmann::json::parse(text).get<RunResult>());
  }
  return results;
}

// Median of the steps from `first` on; of the last one when that leaves none.
std::uint64_t median_ns(std::vector<std::uint64_t> steps, std::int64_t first) {
  if (steps.empty()) return 0;
  steps.erase(steps.begin(),
              steps.begin() + std::min<std::int64_t>(first, static_cast<std::int64_t>(steps.size()) - 1));
  const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
  std::nth_element(steps.begin(), middle, steps.end());
  return *middle;
}

// A plain run needs no plan, but its first steps are not like the others either: the optimizer has no state yet.
constexpr std::int64_t first_usual_step = 3;

// Of one step from `first` on, in joules; 0 where no counter told it.
double joules(const RunResult& run, std::int64_t first) {
  const auto count = static_cast<std::int64_t>(run.energy_mj.size());
  if (first < 1 || first >= count) return 0;
  const std::uint64_t taken = run.energy_mj.back() - run.energy_mj[static_cast<std::size_t>(first - 1)];
  return static_cast<double>(taken) / 1e3 / static_cast<double>(count - first);
}

nlohmann::ordered_json table(const std::string& model, const RunResult& plain, const RunResult& guarded) {
  const std::int64_t first = std::max(guarded.planned_from, first_usual_step);  // both medians are over the same steps
  const std::uint64_t plain_ns = median_ns(plain.step_ns, first), guarded_ns = median_ns(guarded.step_ns, first);
  return {{"model", model},
          {"peak_bytes", plain.peak_bytes},
          {"budget_bytes", guarded.budget_bytes},
          {"resident_max_bytes", guarded.resident_max_bytes},
          {"bytes_in", guarded.bytes_in},
          {"bytes_out", guarded.bytes_out},
          {"stall_count", guarded.stall_count},
          {"stall_ns", guarded.stall_ns},
          {"faults", guarded.faults},
          {"step_ns_plain", plain_ns},
          {"step_ns_guarded", guarded_ns},
          {"ratio", guarded_ns == 0 ? 0.0 : static_cast<double>(plain_ns) / static_cast<double>(guarded_ns)},
          {"step_joules_plain", joules(plain, first)},
          {"step_joules_guarded", joules(guarded, first)},
          {"optimizer_state_bytes", guarded.optimizer_state_bytes},
          {"amp", guarded.amp},
          {"losses_equal", plain.losses == guarded.losses},
          {"first_difference", first_difference(plain.state, guarded.state)}};
}

void print(const nlohmann::ordered_json& table, const RunResult& plain, const RunResult& guarded) {
  const auto mib = [&](const char* key) { return static_cast<double>(table[key].get<std::uint64_t>()) / 1048576; };
  const auto ms = [&](const char* key) { return static_cast<double>(table[key].get<std::uint64_t>()) / 1e6; };
  const auto count = [&](const char* key) { return table[key].get<std::uint64_t>(); };
  const double share = 100 * mib("budget_bytes") / std::max(mib("peak_bytes"), 1e-9);
  const std::size_t steps = guarded.step_ns.size();
  const std::size_t planned = steps - std::min(steps, static_cast<std::size_t>(guarded.planned_from));
  fmt::print("\n{}, {} steps, {} of them planned; {}; pages seen by {}\n", table["model"].get<std::string>(), steps,
             planned, guarded.mechanism, guarded.tracker.empty() ? "nothing" : guarded.tracker);
  const auto row = [](const char* what, const std::string& value) { fmt::print("  {:<38} {:>16}\n", what, value); };
  row("peak, plain", fmt::format("{:.1f} MiB", mib("peak_bytes")));
  row("budget", fmt::format("{:.1f} MiB", mib("budget_bytes")));
  row("budget, share of the peak", fmt::format("{:.1f} %", share));
  row("smallest budget without paging",
      fmt::format("{:.1f} MiB", static_cast<double>(guarded.smallest_budget) / 1048576));
  row("largest resident (kernel), guarded", fmt::format("{:.1f} MiB", mib("resident_max_bytes")));
  row("largest resident (kernel), plain",
      fmt::format("{:.1f} MiB", static_cast<double>(plain.resident_max_bytes) / 1048576));
  row("fetched, whole run", fmt::format("{:.1f} MiB", mib("bytes_in")));
  row("written out, whole run", fmt::format("{:.1f} MiB", mib("bytes_out")));
  row("stalls, whole run", fmt::format("{}", count("stall_count")));
  row("stalled, whole run", fmt::format("{:.1f} ms", ms("stall_ns")));
  row("faults served, whole run", fmt::format("{}", count("faults")));
  row("step, plain (median)", fmt::format("{:.1f} ms", ms("step_ns_plain")));
  row("step, guarded (median)", fmt::format("{:.1f} ms", ms("step_ns_guarded")));
  if (const double joules = table["step_joules_guarded"]; joules > 0)
    row("GPU's energy of a step, plain and guarded",
        fmt::format("{:.2f}, {:.2f} J", table["step_joules_plain"].get<double>(), joules));
  row("speed against plain", fmt::format("{:.3f} x", table["ratio"].get<double>()));
  row("losses equal, bit by bit", table["losses_equal"].get<bool>() ? "yes" : "NO");
  const auto differs = table["first_difference"].get<std::string>();
  row("parameters, buffers, optimizers equal", differs.empty() ? "yes" : "NO");
  if (!differs.empty()) fmt::print("  the first that differs: {}\n", differs);
  if (!guarded.sums.empty()) fmt::print("  both runs: {}\n", guarded.sums);
  if (planned == 0) fmt::print("  no step ran by a plan yet: --steps is too small\n");
}

int compare(const Arguments& arguments, const FastMemory& memory) {
  RunOptions plain_options = arguments.run;
  if (plain_options.device != "cpu") plain_options.deterministic = true;  // else two plain runs differ in last bits
  RunOptions guarded_options = plain_options;
  plain_options.guarded = plain_options.step_in_backward = false;
  plain_options.state = guarded_options.state = true;
  const std::vector<RunResult> plain = run_in_children(plain_options);
  guarded_options.fast_memory =
      memory.share > 0 ? static_cast<std::uint64_t>(memory.share * static_cast<double>(plain[0].peak_bytes))
                       : memory.bytes;
  guarded_options.plain_step_ns = median_ns(plain[0].step_ns, first_usual_step);
  const std::vector<RunResult> guarded = run_in_children(guarded_options);
  bool equal = true;
  auto result = nlohmann::ordered_json::array();
  for (std::size_t rank = 0; rank < plain.size(); ++rank) {
    const std::string name = plain.size() == 1
                                 ? arguments.run.model
                                 : fmt::format("{}, rank {} of {}", arguments.run.model, rank, plain.size());
    result.push_back(table(name, plain[rank], guarded[rank]));
    print(result.back(), plain[rank], guarded[rank]);
    equal = equal && result.back()["losses_equal"].get<bool>() &&
            result.back()["first_difference"].get<std::string>().empty();
  }
  if (!arguments.json.empty()) write_file(arguments.json, (result.size() == 1 ? result[0] : result).dump(2));
  return equal ? 0 : 1;
}

void print(const RunResult& result) {
  fmt::print("peak {:.1f} MiB, largest resident (kernel) {:.1f} MiB, step {:.1f} ms (median)\n",
             static_cast<double>(result.peak_bytes) / 1048576, static_cast<double>(result.resident_max_bytes) / 1048576,
             static_cast<double>(median_ns(result.step_ns, result.planned_from)) / 1e6);
}

// One run in this process, or in one for each rank. A share of the peak needs the peak: a short plain run before tells
// it.
int single(const Arguments& arguments, const FastMemory& memory, const std::string& result_path) {
  RunOptions options = arguments.run;
  options.guarded = !arguments.plain;
  options.fast_memory = memory.bytes;
  if (options.guarded && memory.share > 0) {
    constexpr std::int64_t steps_to_the_peak = 2;  // the optimizer has its state in the second
    RunOptions measuring = options;
    measuring.guarded = measuring.step_in_backward = false;
    measuring.steps = steps_to_the_peak;
    measuring.checkpoint.clear();
    options.fast_memory =
        static_cast<std::uint64_t>(memory.share * static_cast<double>(run_in_children(measuring)[0].peak_bytes));
  }
  if (options.ranks > 1) {
    const std::vector<RunResult> results = run_in_children(options);
    for (const RunResult& result : results) print(result);
    if (!arguments.json.empty()) write_file(arguments.json, nlohmann::json(results).dump(2));
    return 0;
  }
  const RunResult result = run(options);
  const nlohmann::json json = result;
  if (!result_path.empty()) write_file(result_path, json.dump());
  if (!arguments.json.empty()) write_file(arguments.json, json.dump(2));
  if (result_path.empty()) print(result);
  return 0;
}

std::vector<std::string> tracker_words() {
  std::vector<std::string> words;
  for (const std::string_view name : tracker_names()) words.emplace_back(name);
  return words;
}

std::string with_commas(std::string list, std::string_view word) {
  return (list.empty() ? list : list + ", ").append(word);
}

// Refuses unknown names and files that cannot be written before anything runs.
void require_sense(const Arguments& arguments) {
  const RunOptions& options = arguments.run;
  std::string known;
  for (const ModelEntry& entry : models()) known = with_commas(known, entry.name);
  if (std::none_of(models().begin(), models().end(),
                   [&](const ModelEntry& entry) { return entry.name == options.model; }))
    throw std::runtime_error("there is no model '" + options.model + "'; there are " + known);
  known.clear();
  for (const PolicyEntry& entry : policies()) known = with_commas(known, entry.name);
  if (make_policy(options.policy, options.seed) == nullptr)
    throw std::runtime_error("there is no policy '" + options.policy + "'; there are " + known);
  if (options.model == "script" && options.script.empty())
    throw std::runtime_error("the model 'script' is a TorchScript file: name it with --script");
  const std::string slow =
      options.slow.substr(0, options.slow.ends_with("B/s") ? options.slow.rfind('@') : std::string::npos);
  const std::string scheme = slow.substr(0, slow.find_first_of(":@"));
  const bool names_a_place = slow.find(':') != std::string::npos;
  if (scheme != "host" && !(names_a_place && (scheme == "nvme" || scheme == "numa")))
    throw std::runtime_error("there is no slow tier '" + slow +
                             "'; write nvme:DIRECTORY, host, numa:NODE, host:SIZE+nvme:DIRECTORY, or "
                             "numa:NODE+nvme:DIRECTORY");
  if (options.fast != "dram" && !options.fast.starts_with("numa:"))
    throw std::runtime_error("there is no fast memory '" + options.fast +
                             "'; write dram, or numa:NODE; of a GPU it is with --device cuda");
  if (std::error_code unknown; slow.starts_with("nvme:") && !std::filesystem::is_directory(slow.substr(5), unknown))
    throw std::runtime_error("'" + slow.substr(5) +
                             "' is no directory; --slow nvme:DIRECTORY names one on a local disk");
  if (constexpr std::uint64_t smallest_chunk = 16384;
      options.chunk < smallest_chunk || !std::has_single_bit(options.chunk))
    throw std::runtime_error("--chunk is a power of two of at least 16KiB");
  if (arguments.plain && !arguments.compare && !(options.record + options.trace).empty())
    throw std::runtime_error("a plain run has no --record and no --trace: only what trains under a guard is seen");
  if (arguments.plain && arguments.compare)
    throw std::runtime_error("--compare trains plain and then under a guard: leave out --plain");
  if (options.ranks > 1 && (options.step_in_backward || !(options.record + options.trace).empty()))
    throw std::runtime_error(
        "--ranks steps in backward itself, and the ranks would write one --record or --trace: leave these out");
  if (options.amp && (options.step_in_backward || options.shard_optimizer))
    throw std::runtime_error(
        "--amp leaves a step out where any gradient is infinite, which it knows when all are there: leave out "
        "--step-in-backward, which has freed them by then, and --shard-optimizer, where no rank has all of them");
  if (options.table_memory > 0 && options.device == "cpu")
    throw std::runtime_error("--table-memory is of a GPU's memory: add --device cuda, or leave it out");
  if (arguments.compare && !options.checkpoint.empty())
    throw std::runtime_error("--compare runs twice from the beginning: leave out --checkpoint");
  if (std::getenv("WORLD_SIZE") != nullptr && !arguments.plain &&
      (arguments.compare || arguments.fast_memory.ends_with('%')))
    throw std::runtime_error("under torchrun --fast-memory is each rank's number of bytes, and --compare is not there");
  for (const std::string& path : {arguments.json, options.trace, options.record}) require_writable(path);
  if (!options.record.empty()) Recorder::may_open(options.record).value();
}

void add_options_of_processes(CLI::App& app, RunOptions& options) {
  app.add_option("--share", options.share, "auto, or a socket: the memory is shared by a `vedette daemon`");
  app.add_option("--ranks", options.ranks,
                 "train data parallel in so many processes of this machine; torchrun starts them on several")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--lag", options.lag, "of ranks: gradients between one and its parameter's update")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000));
  app.add_flag("--shard-optimizer", options.shard_optimizer,
               "of ranks: each parameter's optimizer state is in one rank alone (ZeRO-1)");
  app.add_option("--checkpoint", options.checkpoint, "the folder to go on from, and to save to");
  app.add_option("--every", options.every, "with --checkpoint: steps from one to the next")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000}));
}

// Options that change nothing without others.
void require_company(const CLI::App& app, const RunOptions& options) {
  for (const char* const name : {"--lag", "--shard-optimizer"}) {
    if (app.count(name) > 0 && options.ranks == 1 && std::getenv("WORLD_SIZE") == nullptr)
      throw std::runtime_error(fmt::format("{} is of ranks: add --ranks, or leave it out", name));
  }
  if (app.count("--every") > 0 && options.checkpoint.empty())
    throw std::runtime_error("--every is of checkpoints: add --checkpoint, or leave it out");
}

void add_options(CLI::App& app, Arguments& arguments, std::string& chunk, std::string& result_path) {
  RunOptions& options = arguments.run;
  const auto counted = [](std::int64_t least) { return CLI::Range(least, std::int64_t{1'000'000'000}); };
  std::string models_help = "the model:";
  for (const ModelEntry& entry : models()) models_help += fmt::format("\n  {:11} {}", entry.name, entry.summary);
  app.add_option("--model", options.model, models_help)->capture_default_str();
  app.add_option("--script", options.script, "train this TorchScript file: a classifier of images [n, 3, 32, 32]")
      ->check(CLI::ExistingFile);
  app.add_option("--fast-memory", arguments.fast_memory,
                 "the budget: bytes (500MiB), or a share of the plain run's peak")
      ->capture_default_str();
  app.add_option("--policy", options.policy, "what decides which bytes move when (vedette plan --list tells them)")
      ->capture_default_str();
  app.add_option("--slow", options.slow,
                 "where the rest waits: nvme:DIRECTORY, host, numa:NODE, host:SIZE+nvme:DIRECTORY, or "
                 "numa:NODE+nvme:DIRECTORY; with @500MB/s or @0.5GB/s after it, no faster; host@cxl-2025 is throttled")
      ->capture_default_str();
  app.add_option("--fast", options.fast, "whose memory the budget is of: dram, or numa:NODE for that node's alone")
      ->capture_default_str();
  app.add_option("--steps", options.steps, "training steps")->capture_default_str()->check(counted(1));
  app.add_option("--batch", options.batch, "samples a step; 0: the model's own")
      ->capture_default_str()
      ->check(counted(0));
  app.add_option("--chunk", chunk, "what moves as one: a power of two, at least 16KiB")->capture_default_str();
  app.add_option("--seed", options.seed, "of parameters and of what is random in training")
      ->capture_default_str()
      ->check(counted(0));
  app.add_option("--threads", options.threads, "threads of libtorch")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  app.add_option("--profile", options.profile, "what the profiling step watches (default: layers, ops with --record)")
      ->check(CLI::IsMember({"operands", "layers", "ops"}));
  app.add_option("--tracker", options.tracker, "what sees pages in the profiling step")
      ->capture_default_str()
      ->check(CLI::IsMember(tracker_words()));
  app.add_flag("--step-in-backward", options.step_in_backward,
               "update each parameter as soon as its gradient is there; with --compare, the plain run does not");
  add_options_of_processes(app, options);
  app.add_option("--table-memory", arguments.table_memory,
                 "with --device cuda: so much of the budget is for the hot rows of larger tables");
  app.add_option("--warmup", options.warmup_steps, "steps before the one that is profiled")->capture_default_str();
  app.add_option("--max-writes", options.max_writes, "what the disk may take: 500GB/day; or its rating, 600TBW");
  app.add_flag("--checksums", options.checksums, "compare what comes back from the slow tier with what went there");
  app.add_flag("--recompute", options.recompute,
               "tensors may be dropped and recomputed by running their ops once more, as the policy plans");
  app.add_flag("--recompute-all", options.recompute_all,
               "for tests: all that can be recomputed is dropped at every opportunity");
  app.add_option("--record", options.record, "write what happened to this file");
  app.add_option("--trace", options.trace, "write the profiled step to this file, as vedette-trace-1");
  app.add_option("--planned-traces", options.planned_traces,
                 "for the benches: the steps that have plans, in chunks, to NAME.0, NAME.1 ..., in tensors to "
                 "NAME.0.program, and what steps touched of tables to NAME.0.rows")
      ->group("");
  app.add_option("--json", arguments.json, "write the table to this file");
  app.add_flag("--state", options.state, "for the tests: digests of what training leaves, into --json")->group("");
  app.add_flag("--paced", options.paced, "for bench/recording.py: each step waits for a byte on standard input")
      ->group("");
  app.add_option("--plain-step-ns", options.plain_step_ns, "for the driver itself")->group("");
  app.add_option("--result", result_path, "for the driver itself")->group("");
  app.add_option("--device", options.device, "where the model trains: cpu, or cuda, whose memory the budget is then")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_flag("--small", options.small, "shapes and data for tests");
  app.add_flag("--made-up-data", options.made_up_data, "bytes made up from a seed, where the data's packages are not");
  app.add_flag("--deterministic", options.deterministic,
               "operators that have a deterministic form take it, as --compare needs on a GPU");
  app.add_flag("--amp", options.amp, "the forward pass under autocast to bf16, and gradients of a scaled loss");
  app.add_flag("--plain", arguments.plain, "train without a guard");
  app.add_flag("--compare", arguments.compare, "train plain, then inside the budget, and print both side by side");
}

int train(int count, char** words) {
  Arguments arguments;
  std::string chunk = "2MiB", result_path;
  CLI::App app("Trains a model, plain or inside a memory budget, or both to compare them.", "train");
  add_options(app, arguments, chunk, result_path);
  try {
    app.parse(count, words);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    fmt::print(stderr, "train: {} (train --help says more)\n", error.what());
    return 2;
  }
  RunOptions& options = arguments.run;
  options.chunk = parse_bytes(chunk);
  if (!arguments.table_memory.empty()) options.table_memory = parse_bytes(arguments.table_memory);
  if (!options.script.empty()) {
    if (app.count("--model") > 0 && options.model != "script")
      throw std::runtime_error("--script names a model itself; leave out --model " + options.model);
    options.model = "script";
  }
  const FastMemory memory = parse_fast_memory(arguments.fast_memory);
  require_company(app, options);
  require_sense(arguments);
  return arguments.compare ? compare(arguments, memory) : single(arguments, memory, result_path);
}

}  // namespace
}  // namespace vedette::examples

int main(int count, char** words) {
  try {
    return vedette::examples::train(count, words);
  } catch (const std::exception& error) {
    const std::string sentence = error.what();  // libtorch's go on with the stack
    fmt::print(stderr, "train: {}\n", sentence.substr(0, sentence.find('\n')));
    return 1;
  }
}
