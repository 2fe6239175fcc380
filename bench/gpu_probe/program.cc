// The command line and the JSON of the probes: see program.h.
#include "gpu_probe/program.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>

#include "gpu_probe/library.h"
#include "gpu_probe/run_groups.h"
#include "machine.h"
#include "vedette/result.h"

namespace vedette::gpu {
namespace {

struct Options {
  ProbeOptions probe;
  RunOptions run;
  std::string json, commit, group, rows;  // group, rows: of a child
  std::uint64_t skip = 0;
};

int run_as_child(const Options& options) {
  const std::vector<Group>& all = options.run.groups;
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Group& each) { return options.group == each.name; });
  if (found == all.end()) return 2;
  Recorder recorder({.file = options.rows,
                     .skip = options.skip,
                     .cell_limit_s = options.run.cell_limit_s,
                     .quick = options.run.quick});
  try {
    found->run(options.probe, recorder);
  } catch (const std::exception& error) {
    recorder.measure(found->point, found->name, Json::object(), {{"all", ""}},
                     [&](Cell&) { throw Refused(error.what()); });
  }
  return 0;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

void write_json(const std::string& path, const Json& document) {
  std::ofstream file(path + ".part");
  file << document.dump(1, ' ', false, Json::error_handler_t::replace) << '\n';
  file.close();
  if (!file) throw Failure({.message = "writing " + path + " failed"});
  std::filesystem::rename(path + ".part", path);
}

std::vector<std::string> words_for_children(const Options& options) {
  std::vector<std::string> words = {"--libcuda",    options.probe.driver,
                                    "--libnvml",    options.probe.energy,
                                    "--busy-ms",    std::to_string(options.probe.busy_ms),
                                    "--cell-limit", std::to_string(options.run.cell_limit_s)};
  const std::string& slow = options.probe.slow_directory;
  if (slow.empty()) {
    words.push_back("--no-disk");
  } else {
    words.insert(words.end(), {"--slow", slow});
  }
  if (!options.probe.activity.empty()) words.insert(words.end(), {"--libcupti", options.probe.activity});
  if (options.run.quick) words.push_back("--quick");
  return words;
}

int run_all(Options options) {
  Json document{{"format", "vedette-gpu-probe-1"},
                {"began", utc_now()},
                {"commit", options.commit},
                {"machine", bench::machine_line()},
                {"quick", options.run.quick},
                {"groups", Json::array()},
                {"rows", Json::array()}};
  options.run.program = "/proc/self/exe";
  options.run.words = words_for_children(options);
  options.run.after_each = [&] {
    if (!options.json.empty()) write_json(options.json, document);  // what is known survives whatever comes next
  };
  std::printf("%s\n", bench::machine_line().c_str());
  run_groups(options.run, document);
  std::fputs(table(document["rows"]).c_str(), stdout);
  for (const Json& row : document["rows"]) {
    if (row.contains("refused") && row["refused"].get<std::string>().starts_with("no driver")) {
      std::printf("\n%s: nothing of the GPU was measured\n", row["refused"].get<std::string>().c_str());
      break;
    }
  }
  return 0;
}

void add_options(CLI::App& app, Options& options) {
  app.add_option("--json", options.json, "file for what was measured");
  app.add_option("--only", options.run.only, "these groups alone")->delimiter(',');
  app.add_flag("--quick", options.run.quick, "three repetitions, small sizes: for tests");
  app.add_option("--slow", options.probe.slow_directory, "directory whose disk is measured")->capture_default_str();
  app.add_flag_callback(
      "--no-disk", [&options] { options.probe.slow_directory.clear(); }, "leave the disk alone");
  app.add_option("--budget", options.run.budget_s, "seconds for everything")->capture_default_str();
  app.add_option("--cell-limit", options.run.cell_limit_s, "seconds for one measurement")->capture_default_str();
  app.add_option("--busy-ms", options.probe.busy_ms, "how long the kernel runs that a call may wait for")
      ->capture_default_str();
  app.add_option("--commit", options.commit, "of the source, for the JSON");
  app.add_option("--libcuda", options.probe.driver, "CUDA's driver")->capture_default_str();
  app.add_option("--libnvml", options.probe.energy, "NVML")->capture_default_str();
  app.add_option("--libcupti", options.probe.activity, "CUPTI; without it, the usual places");
  app.add_option("--group", options.group, "run this group here and now")->group("");
  app.add_option("--rows", options.rows, "file for the rows of --group")->group("");
  app.add_option("--skip", options.skip, "measurements of --group to leave out")->group("");
  std::string list = "Groups:";
  for (const Group& each : options.run.groups) list.append("\n  ").append(each.name).append(": ").append(each.what);
  app.footer(list);
}

}  // namespace

int run_program(const char* title, std::vector<Group> groups, int count, char** words) {
  CLI::App app(title);
  Options options;
  options.run.groups = std::move(groups);
  add_options(app, options);
  CLI11_PARSE(app, count, words);
  try {
    return options.group.empty() ? run_all(options) : run_as_child(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_probe: %s\n", error.what());
    return 1;
  }
}

}  // namespace vedette::gpu
