// `vedette races -- PROGRAM`: any program of CUDA on the simulated GPU, whose detector tells accesses of streams that
// nothing orders, whatever the timing.
#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/readable.h"
#include "cli/output_file.h"
#include "cli/print.h"
#include "cli/races_run.h"
#include "cli/verbs.h"
#include "profiler/stacks.h"
#include "profiler/symbols.h"
#include "vedette/result.h"

namespace vedette::cli {
namespace {

using nlohmann::json;

constexpr int status_with_races = 70;
constexpr std::size_t most_frames = 8;

struct Options {
  std::string memory = "16GiB", json_file;
  int gpus = 1;
  std::size_t most = 20;
};

struct Side {
  std::string what;
  std::uint64_t stream = 0;
  bool write = false;
  std::vector<std::string> frames, of_first_thread;
};

struct Race {
  Side first, second;
  std::uint64_t begin = 0, end = 0;
  std::string memory;
  std::vector<std::string> allocated;
};

struct Covered {
  std::map<std::string, std::uint64_t> commands, missing;
  std::uint64_t copies = 0, copied = 0, streams = 0, waits = 0, processes = 0, unfinished = 0;
  bool torch_without_cuda = false;
  std::vector<std::string> stopped;
};

// The simulated GPU, and Python itself, whose own frames are told by Python.
bool is_of_the_machine(std::string_view file) {
  file.remove_prefix(file.rfind('/') + 1);
  for (const std::string_view each :
       {"libcuda.so", "libcudart", "libsimulated", "libcublas", "libnccl", "libpython", "python"})
    if (file.starts_with(each)) return true;
  return false;
}

std::string quoted(const std::string& path) {
  std::string out = "'";
  for (const char c : path) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// Frames of the program's own code, from return addresses of its processes. Names are those of the file's table of
// symbols; lines come from addr2line (binutils) where the machine has it and the file was built with -g.
class RacesFrames {
 public:
  // Of an array of FRAME (simulated_gpu/reports.h): "name (file.cc:12)", the innermost first.
  std::vector<std::string> of(const json& native);

 private:
  std::string name(const std::string& file, std::uint64_t offset, const std::string& symbol);
  std::string line(const std::string& file, std::uint64_t offset);
  std::map<std::string, Symbols> files_;
  std::map<std::pair<std::string, std::uint64_t>, std::string> lines_;
};

std::string RacesFrames::line(const std::string& file, std::uint64_t offset) {
  const auto [known, fresh] = lines_.try_emplace({file, offset});
  if (!fresh) return known->second;
  std::array<char, 64> number{};
  std::snprintf(number.data(), number.size(), "%#llx", static_cast<unsigned long long>(offset));
  const std::string command = "addr2line -e " + quoted(file) + " " + number.data() + " 2>/dev/null";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> answer(::popen(command.c_str(), "re"), &::pclose);
  std::array<char, 4096> text{};
  if (answer == nullptr || std::fgets(text.data(), static_cast<int>(text.size()), answer.get()) == nullptr) return {};
  std::string told(text.data());
  told = told.substr(0, told.find_first_of("\n ("));
  return known->second = told.starts_with("?") || told.ends_with(":?") || told.ends_with(":0") ? "" : told;
}

std::string RacesFrames::name(const std::string& file, std::uint64_t offset, const std::string& symbol) {
  const auto [symbols, fresh] = files_.try_emplace(file, file);
  return symbol.empty() ? symbols->second.at(offset) : symbol;
}

std::vector<std::string> RacesFrames::of(const json& native) {
  std::vector<std::string> frames;
  for (const json& each : native) {
    const std::string file = each.value("file", "");
    if (file.empty() || is_of_the_machine(file) || !is_own_frame(file, {})) continue;
    const auto offset = each.value("offset", std::uint64_t{0});
    const std::string symbol = name(file, offset, each.value("symbol", ""));
    if (!is_own_frame(file, symbol)) continue;
    std::string told = symbol.empty() ? file.substr(file.rfind('/') + 1) : demangled(symbol);
    if (const std::string where = line(file, offset); !where.empty())
      told += " (" + where + ")";
    else if (symbol.empty())
      continue;  // a frame that says nothing
    frames.push_back(std::move(told));
  }
  return frames;
}

// Frames inside of torch tell little of the program.
std::vector<std::string> own_frames(const json& python) {
  std::vector<std::string> frames;
  for (const json& each : python) {
    const std::string frame = each.get<std::string>();
    if (frame.find("site-packages/torch/") == std::string::npos) frames.push_back(frame);
  }
  return frames;
}

Side read_side(const json& from, RacesFrames& frames) {
  Side side{.what = from.value("what", ""),
            .stream = from.value("stream", std::uint64_t{0}),
            .write = from.value("write", false),
            .frames = own_frames(from.value("python", json::array()))};
  if (!side.frames.empty()) return side;
  side.of_first_thread = own_frames(from.value("of_first_thread", json::array()));
  if (side.of_first_thread.empty()) side.frames = frames.of(from.value("native", json::array()));
  return side;
}

// Pairs that look alike to the reader are one.
std::vector<Race> read_races(const RacesRun& run) {
  std::vector<Race> races;
  std::set<std::string> seen;
  RacesFrames frames;
  for (const json& line : run.lines) {
    if (!line.contains("race")) continue;
    const json& from = line["race"];
    Race race{.first = read_side(from.value("first", json::object()), frames),
              .second = read_side(from.value("second", json::object()), frames),
              .begin = from.value("begin", std::uint64_t{0}),
              .end = from.value("end", std::uint64_t{0}),
              .memory = from.value("memory", ""),
              .allocated = frames.of(from.value("allocated", json::array()))};
    json key;
    for (const Side* side : {&race.first, &race.second})
      key.push_back({side->what, side->write, side->frames, side->of_first_thread});
    if (seen.insert(key.dump(-1, ' ', false, json::error_handler_t::replace)).second) races.push_back(std::move(race));
  }
  return races;
}

Covered read_covered(const RacesRun& run) {
  Covered all;
  std::uint64_t ended = 0;
  for (const json& line : run.lines) {
    if (line.contains("device")) ++all.processes;
    if (line.contains("stopped")) all.stopped.push_back(line.value("stopped", ""));
    if (!line.contains("covered")) continue;
    const json& from = line["covered"];
    const auto add = [](std::map<std::string, std::uint64_t>& to, const json& counts) {
      for (const auto& [name, count] : counts.items()) to[name] += count.get<std::uint64_t>();
    };
    add(all.commands, from.value("commands", json::object()));
    add(all.missing, from.value("missing", json::object()));
    all.copies += from.value("copies", std::uint64_t{0});
    all.copied += from.value("copied", std::uint64_t{0});
    all.streams += from.value("streams", std::uint64_t{0});
    all.waits += from.value("waits", std::uint64_t{0});
    if (from.value("streams", std::uint64_t{0}) > 0) ++ended;
    if (from.value("torch", "") == "cpu") all.torch_without_cuda = true;
  }
  all.unfinished = all.processes > ended ? all.processes - ended : 0;
  return all;
}

std::string many(std::uint64_t count, const std::string& one, const std::string& more) {
  return std::to_string(count) + " " + (count == 1 ? one : more);
}

std::string on_stream(const Side& side) {
  return side.what + " on stream " + std::to_string(side.stream) + (side.stream == 0 ? ", the default one," : "");
}

void print_side(const char* place, const Side& side) {
  print_to(stderr, "   {} {} {}\n", place, on_stream(side), side.write ? "writes" : "reads");
  const auto print_frames = [](const std::vector<std::string>& frames) {
    for (std::size_t i = 0; i < std::min(frames.size(), most_frames); ++i)
      print_to(stderr, "           {}\n", frames[i]);
  };
  print_frames(side.frames);
  if (!side.of_first_thread.empty())
    print_to(stderr, "           on another thread, while the program's first one was in\n");
  print_frames(side.of_first_thread);
  if (side.frames.empty() && side.of_first_thread.empty())
    print_to(stderr, "           (no frame of the program's own)\n");
}

void print_race(std::size_t number, const Race& race) {
  print_to(stderr, "\n{}. {} bytes from {:#x} on: {}{}\n", number, race.end - race.begin, race.begin, race.memory,
           race.allocated.empty() ? "" : ", allocated in " + race.allocated.front());
  print_side("first  ", race.first);
  print_side("then   ", race.second);
}

std::string listed(const std::map<std::string, std::uint64_t>& counts) {
  constexpr std::size_t most = 8;
  std::string text;
  std::size_t told = 0;
  for (const auto& [name, count] : counts) {
    if (told++ == most) return text + " and " + std::to_string(counts.size() - most) + " more";
    text += (text.empty() ? "" : ", ") + name + " (" + std::to_string(count) + ")";
  }
  return text.empty() ? "none" : text;
}

std::string covered_line(const Covered& c) {
  std::uint64_t commands = 0;
  for (const auto& [name, count] : c.commands) commands += count;
  for (const auto& [name, count] : c.missing) commands -= std::min(commands, count);
  return "covered: " + many(commands, "operator", "operators") + " of " + many(c.commands.size(), "kind", "kinds") +
         ", " + many(c.copies, "copy", "copies") + " (" + readable(Bytes{c.copied}) + ") on " +
         many(c.streams, "stream", "streams") + ", " + many(c.waits, "wait", "waits") +
         " of a stream for an event; kernels that the simulated GPU has not: " + listed(c.missing);
}

json in_json(const Side& side) {
  return {{"what", side.what},
          {"stream", side.stream},
          {"access", side.write ? "write" : "read"},
          {"stack", side.frames},
          {"stack_of_first_thread", side.of_first_thread}};
}

void write_json(const std::string& file, const std::vector<Race>& races, const Covered& c, int status) {
  json all{{"status", status}, {"races", json::array()}};
  for (const Race& race : races)
    all["races"].push_back({{"first", in_json(race.first)},
                            {"second", in_json(race.second)},
                            {"begin", race.begin},
                            {"end", race.end},
                            {"memory", race.memory},
                            {"allocated", race.allocated}});
  all["covered"] = {{"operators", c.commands}, {"copies", c.copies}, {"copied_bytes", c.copied},
                    {"streams", c.streams},    {"waits", c.waits},   {"missing_kernels", c.missing}};
  write_output(file, {}, all.dump(1, ' ', false, json::error_handler_t::replace) + "\n");
}

// The sentence for a program that used no device; empty for others.
std::string not_looked_at(const Covered& c, int status) {
  if (c.processes > 0) return {};
  if (status == 127) return "the program could not be started on the simulated GPU: what is told above says why";
  if (c.torch_without_cuda)
    return "the program's torch has no CUDA part, so that nothing was looked at; install PyTorch's build for CUDA "
           "(python -c 'import torch; print(torch.version.cuda)' names its version)";
  return "the program made no call of CUDA, so that nothing was looked at; CUDA's runtime has to be a shared library "
         "(nvcc -cudart shared) in each program and library that calls it";
}

void look(const Options& options, const std::vector<std::string>& words) {
  const auto memory = vedette::read_size(options.memory);
  if (!memory || memory->value < std::uint64_t{2} << 20 || memory->value > std::uint64_t{48} << 30)
    throw Failure({.cause = Cause::malformed_input,
                   .message = "--memory " + options.memory + " is no size from 2MiB to 48GiB; write 16GiB"});
  const RacesRun run = run_on_simulated_gpu(words, "memory_mib=" + std::to_string(memory->value >> 20) +
                                                       " devices=" + std::to_string(options.gpus) +
                                                       " skip_kernels=1 first_calls_order=0");
  const std::vector<Race> races = read_races(run);
  const Covered covered = read_covered(run);
  const std::string blind = not_looked_at(covered, run.status);
  const int status = !races.empty() ? status_with_races : !blind.empty() && run.status == 0 ? 1 : run.status;
  if (!options.json_file.empty()) write_json(options.json_file, races, covered, status);
  if (!blind.empty()) {
    print_to(stderr, "vedette races: {}\n", blind);
    throw Status{status};
  }
  print_to(stderr, "vedette races: {}\n",
           races.empty() ? "nothing unordered was found"
                         : many(races.size(), "pair of accesses", "pairs of accesses") + " that nothing orders");
  for (std::size_t i = 0; i < std::min(races.size(), options.most); ++i) print_race(i + 1, races[i]);
  if (races.size() > options.most) print_to(stderr, "\n{} more (--most)\n", races.size() - options.most);
  if (!races.empty())
    print_to(stderr, "\n{}\n",
             "Record an event behind the first access and let the other's stream wait for it (cudaStreamWaitEvent, "
             "torch.cuda.Stream.wait_stream); where the memory was given to another tensor meanwhile, record_stream.");
  for (const std::string& sentence : covered.stopped)
    print_to(stderr, "vedette races: the program was ended there: {}\n", sentence);
  if (run.status > 128)
    print_to(stderr, "vedette races: the program was ended by signal {} ({})\n", run.status - 128,
             std::string(::strsignal(run.status - 128)));
  if (covered.unfinished > 0 && covered.stopped.empty())
    print_to(stderr, "vedette races: {} ended without a last word, so that what {} ran is not counted\n",
             many(covered.unfinished, "process", "processes"), covered.unfinished == 1 ? "it" : "they");
  print_to(stderr, "{}\n", covered_line(covered));
  if (status != 0) throw Status{status};
}

}  // namespace

std::vector<std::string>& words_of_program() {
  static std::vector<std::string> words;
  return words;
}

void add_races(CLI::App& app) {
  CLI::App* verb =
      app.add_subcommand("races", "Runs a CUDA program without a GPU: accesses of streams that nothing orders");
  verb->footer(
      "vedette races [options] -- PROGRAM [ARGUMENTS]\n"
      "Status: 70 where races were found or the device was misused, 1 where nothing could be looked at, else the "
      "program's own.");
  verb->prefix_command();
  auto options = std::make_shared<Options>();  // shared: the callback is copied into the App
  verb->add_option("--memory", options->memory, "of the simulated GPU (16GiB)");
  verb->add_option("--gpus", options->gpus, "how many the program sees (1)")->check(CLI::Range(1, 64));
  verb->add_option("--most", options->most, "pairs that are printed (20)");
  verb->add_option("--json", options->json_file, "writes all pairs and what was covered to this file");
  verb->callback([options, verb] {
    const std::vector<std::string> unmarked = verb->remaining();
    const std::vector<std::string>& words = words_of_program().empty() ? unmarked : words_of_program();
    if (words.empty()) throw CLI::ValidationError("name a program: vedette races -- python train.py");
    if (!unmarked.empty() && (unmarked.front().starts_with("-") || !words_of_program().empty()))
      throw CLI::ValidationError("there is no option '" + unmarked.front() + "'");
    look(*options, words);
  });
}

}  // namespace vedette::cli
