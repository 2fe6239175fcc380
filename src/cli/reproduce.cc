// vedette reproduce WHAT: an experiment of the docs, made again in one command: tables as text and CSV, a chart, one
// page, and provenance.json, which names all that it was made from. Results are kept in the folder `cells`.
#include "cli/reproduce.h"

#include <fmt/core.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

#include "cli/html.h"
#include "cli/lab.h"
#include "cli/output_file.h"
#include "cli/print.h"
#include "cli/sha256.h"
#include "cli/verbs.h"
#include "profiler/origin.h"

namespace vedette::cli {
namespace {

namespace fs = std::filesystem;

struct Experiment {
  const char *name, *says;
  Reproduced (*make)(const ReproduceOptions&);
};
constexpr Experiment experiments[] = {
    {"g10", "G10's published table, replayed (docs/g10.md)", reproduce_g10},
    {"policies", "every policy on every trace, and published figures beside ours", reproduce_policies},
    {"pack", "offsets for the given lifetimes (docs/pack.md)", reproduce_pack},
    {"sim-vs-live", "recorded runs beside what the simulator says of them", reproduce_sim_vs_live},
};

std::string fact(const std::string& key) {
  for (const auto& [name, value] : facts_of_this_run()) {
    if (name == key) return value;
  }
  return {};
}

Json provenance_of(const ReproduceOptions& options, const Reproduced& made) {
  Json json{{"format", "vedette-provenance-1"}, {"experiment", options.what}, {"command", command_of_this_process()},
            {"vedette", fact("vedette")},       {"commit", fact("commit")},   {"seeds", Json::array({options.seed})},
            {"machines", Json::array()},        {"inputs", Json::array()},    {"outputs", Json::array()}};
  for (const auto& [name, text] : made.machines)
    json["machines"].push_back({{"name", name}, {"sha256", sha256(text)}, {"machine", Json::parse(text)}});
  for (const Input& input : made.inputs) json["inputs"].push_back({{"name", input.name}, {"sha256", input.sha256}});
  for (const auto& [name, text] : made.files) json["outputs"].push_back({{"name", name}, {"sha256", sha256(text)}});
  return json;
}

constexpr const char* style =
    R"(td,th{vertical-align:top}td:first-child,th:first-child,td.words{text-align:left}
td.words{white-space:normal;min-width:18em}svg{min-width:44rem}p{max-width:60em})";

std::string page_of(const Reproduced& made, const Json& provenance) {
  std::string page = page_head("vedette reproduce", style);
  page += "<h1>" + html_escaped(made.title) + "</h1>\n" + made.body + "<h2>Made from</h2>\n<dl>";
  for (const char* key : {"vedette", "commit", "command"})
    page += fmt::format("<dt>{}<dd><code>{}</code>", key, html_escaped(provenance[key].get<std::string>()));
  std::string machines;
  for (const auto& [name, text] : made.machines) machines += (machines.empty() ? "" : ", ") + html_escaped(name);
  if (!machines.empty()) page += "<dt>machine<dd>" + machines;
  page += fmt::format("<dt>seed<dd>{}</dl>\n<div class=\"scroll\">", provenance["seeds"][0].get<std::uint64_t>());
  std::vector<std::vector<std::string>> rows{{"input", "SHA-256"}};
  for (const Input& input : made.inputs) rows.push_back({input.name, input.sha256});
  return page + html_table(rows) + "</div></html>\n";
}

void reproduce(ReproduceOptions options) {
  const auto found = std::find_if(std::begin(experiments), std::end(experiments),
                                  [&](const Experiment& each) { return each.name == options.what; });
  if (options.folder.empty()) options.folder = "reproduced/" + options.what;
  std::error_code failed;
  fs::create_directories(options.folder, failed);
  if (failed) throw Failure({Cause::system, options.folder + " cannot be made: " + failed.message()});
  const Reproduced made = found->make(options);
  const Json provenance = provenance_of(options, made);
  for (const auto& [name, text] : made.files) write_output(options.folder + "/" + name, {}, text);
  write_output(options.folder + "/index.html", {}, page_of(made, provenance));
  write_output(options.folder + "/provenance.json", {}, provenance.dump(1) + "\n");
  print_lines(made.text);
  std::fflush(stdout);
  print_to(stderr, "{}/index.html: {} results computed, {} kept from before\n", options.folder, made.counts.computed,
           made.counts.kept);
}

}  // namespace

Input read_input(const std::string& name, const std::string& path) {
  Input input{.name = name, .path = path, .text = read_file(path)};
  input.sha256 = sha256(input.text);
  return input;
}

std::string data_folder(const ReproduceOptions& options, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    std::error_code unknown;
    if (const fs::path path = fs::path(options.data) / folder; fs::is_directory(path, unknown)) return path.string();
  }
  throw Failure({Cause::system, fmt::format("there is no folder {} in {}; scripts/fetch_traces.py makes it, and "
                                            "--traces or VEDETTE_DATA names where it lies",
                                            folders.front(), options.data)});
}

std::vector<std::string> names_in(const ReproduceOptions& options, const std::string& folder,
                                  const std::string& ending) {
  const std::vector<std::string> wanted = split(options.only, ',');
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string file = entry.path().filename().string();
    if (!file.ends_with(ending)) continue;
    std::string name = file.substr(0, file.size() - ending.size());
    if (wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end())
      names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string cells_folder(const ReproduceOptions& options) { return options.folder + "/cells"; }

double geometric_mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += std::log(value);
  return values.empty() ? 0 : std::exp(sum / static_cast<double>(values.size()));
}

void add_reproduce(CLI::App& app) {
  std::string says = "Experiments:";
  std::vector<std::string> names;
  for (const Experiment& each : experiments) {
    says.append("\n  ").append(each.name).append(": ").append(each.says);
    names.emplace_back(each.name);
  }
  auto* verb = app.add_subcommand("reproduce", "Makes an experiment of the docs again, with where it came from");
  verb->footer(says);
  const auto options = std::make_shared<ReproduceOptions>();
  options->data = "data";
  verb->add_option("what", options->what, "the experiment")->required()->check(CLI::IsMember(names));
  verb->add_option("--traces", options->data, "the folder of the inputs, which scripts/fetch_traces.py makes")
      ->envname("VEDETTE_DATA")
      ->capture_default_str();
  verb->add_option("-o,--output", options->folder, "the folder of the results (default: reproduced/WHAT)");
  verb->add_option("--only", options->only, "inputs by their names, with commas (default: all)");
  verb->add_option("--jobs", options->threads, "threads (default: one a processor)")->check(CLI::Range(1, 256));
  verb->add_option("--machine", options->machine, "of policies: " + machine_words())->capture_default_str();
  verb->add_option("--policy", options->policies,
                   "of policies: all, names, or files of policies of your own, with commas")
      ->capture_default_str();
  verb->add_option("--fast-memory", options->fast, "of policies: shares of the peak, with commas (default: 20%,50%)")
      ->allow_extra_args(false);
  verb->add_option("--recording", options->recordings, "of sim-vs-live: recordings of runs");
  verb->add_option("--seed", options->seed, "of policies that search at random")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 62));
  verb->callback([options] { reproduce(*options); });
}

}  // namespace vedette::cli
