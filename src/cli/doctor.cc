// vedette doctor: the abilities of this machine, line by line; the mechanisms that vedette will use here; and for each
// missing one its benefit and the way to get it.
#include <fmt/core.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <bit>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/beside.h"
#include "cli/diagnosis.h"
#include "cli/disk_speed.h"
#include "cli/endurance.h"
#include "cli/output_file.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "vedette/machine.h"

namespace vedette::cli {
namespace {

struct DoctorOptions {
  std::string slow = ".", machine, endurance;
  std::uint64_t chunk = (2_MiB).value;
  bool no_disk = false;
  bool json = false;
};

std::string not_indented(const std::string& subject) { return subject.substr(subject.find_first_not_of(' ')); }

void print_wrapped(std::size_t indent, const std::string& text) {
  constexpr std::size_t width = 110;
  std::size_t column = indent;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (column > indent && column + (end - at) > width) {
      print("\n{:{}}", "", indent);
      column = indent;
    } else if (column > indent) {
      print(" ");
      ++column;
    }
    print("{}", text.substr(at, end - at));
    column += end - at;
    at = end + 1;
  }
  print("\n");
}

void print_text(const Diagnosis& diagnosis, const std::vector<Line>& lines) {
  constexpr const char* marks[] = {"ok", "part", "no", ""};
  print("What this machine can do\n\n");
  for (const Line& line : lines) {
    print("{:>5}  {:<17}", marks[static_cast<std::size_t>(line.mark)], line.subject);
    print_wrapped(24, line.finding);
  }
  const auto said = [](const Result<std::string>& use) { return use ? *use : "none: " + use.error().message; };
  print("\nWhat vedette uses here\n\n");
  for (const auto& [subject, use] :
       {std::pair{"memory", &diagnosis.uses.memory}, std::pair{"tracking", &diagnosis.uses.tracking},
        std::pair{"transfers", &diagnosis.uses.io}}) {
    print("{:>5}  {:<17}", *use ? "ok" : "no", subject);
    print_wrapped(24, said(*use));
  }
  const bool complete = std::all_of(lines.begin(), lines.end(), [](const Line& line) { return line.unlocks.empty(); });
  if (complete) {
    print("\nNothing is missing.\n");
    return;
  }
  print("\nWhat is missing\n");
  for (const Line& line : lines) {
    if (line.unlocks.empty()) continue;
    print("\n       {}\n         unlocks       ", not_indented(line.subject));
    print_wrapped(23, line.unlocks);
    print("         how to get it ");
    print_wrapped(23, line.remedy);
  }
}

constexpr Nanoseconds a_second{1'000'000'000};

// By a program that writes all the time; a guard tells how much its own writes are.
void print_wear(const Diagnosis& diagnosis, const std::optional<Endurance>& rated) {
  if (!diagnosis.disk || !*diagnosis.disk) return;
  const std::string a_day = readable_daily({(*diagnosis.disk)->speed.write}, a_second, rated);
  if (a_day.empty()) return;
  print("\nWhat writing does to the disk\n\n       ");
  print_wrapped(7, "written without a pause it takes " + a_day +
                       "; a guard's first line tells how much its program writes in a day, and max_writes bounds it");
}

using Json = nlohmann::ordered_json;

Json json_of(const Tried& tried) {
  Json json{{"works", tried.works}};
  if (!tried.works) json["why_not"] = tried.why_not;
  return json;
}

Json json_of(const Result<std::string>& use) {
  return use ? Json{{"mechanism", *use}} : Json{{"mechanism", nullptr}, {"why_not", use.error().message}};
}

Json json_of_facts(const MachineFacts& facts) {
  constexpr const char* accesses[] = {"none", "user_mode_only", "full"};
  Json json;
  json["kernel"] = facts.kernel;
  json["processor"] = facts.processor;
  json["processors"] = facts.processors;
  json["memory"] = {{"bytes", facts.memory.value},
                    {"available_bytes", facts.available_memory.value},
                    {"swap_bytes", facts.swap.value},
                    {"cgroup_limit_bytes", facts.memory_limit ? Json(facts.memory_limit->value) : Json(nullptr)},
                    {"largest_budget_bytes", largest_budget(facts).value}};
  json["userfaultfd"] = {{"access", accesses[static_cast<std::size_t>(facts.userfaultfd)]},
                         {"features", userfaultfd_feature_names(facts.userfaultfd_features)},
                         {"move", json_of(facts.move)}};
  if (!facts.userfaultfd_refusal.empty()) json["userfaultfd"]["why_not_full"] = facts.userfaultfd_refusal;
  json["pagemap_scan"] = json_of(facts.pagemap_scan);
  json["zap_tracking"] = json_of(facts.trackers.zap);
  json["trackers"] = {{"zap", json_of(facts.trackers.zap)},
                      {"missing", json_of(facts.trackers.missing)},
                      {"mprotect", json_of(facts.trackers.mprotect)}};
  json["io_uring"] = json_of(facts.uring);
  json["registered_buffers"] = json_of(facts.registered_buffers);
  const bool unlimited = facts.locked_memory_limit == unlimited_bytes;
  json["locked_memory"] = {{"limit_bytes", unlimited ? Json(nullptr) : Json(facts.locked_memory_limit)},
                           {"may_exceed", facts.may_exceed_locked_limit}};
  json["huge_pages"] = {
      {"setting", facts.huge_pages}, {"shared", facts.shared_huge_pages}, {"got_one", json_of(facts.huge_page)}};
  json["max_map_count"] = facts.max_map_count;
  json["overcommit"] = facts.overcommit;
  return json;
}

Json json_of(const GpuFacts& gpu) {
  Json json{{"name", gpu.name}, {"bytes", gpu.total.value}, {"free_bytes", gpu.free.value}};
  if (gpu.numa_node) json["numa_node"] = *gpu.numa_node;
  if (gpu.link) {
    json["in_bytes_per_s"] = gpu.link->speed.read;
    json["out_bytes_per_s"] = gpu.link->speed.write;
    json["both_bytes_per_s"] = gpu.link->speed.mixed;
    json["one_bus"] = !gpu.link->duplex();
    json["latency_ns"] = gpu.link->latency.value;
  } else {
    json["why_no_link"] = gpu.link.error().message;
  }
  if (gpu.watts)
    json["watts"] = *gpu.watts;
  else
    json["why_no_watts"] = gpu.watts.error().message;
  return json;
}

void print_json(const Diagnosis& diagnosis, const std::vector<Line>& lines, const DoctorOptions& options) {
  Json json = json_of_facts(diagnosis.facts);
  if (diagnosis.host_bytes_per_s) json["memory"]["bytes_per_s"] = *diagnosis.host_bytes_per_s;
  json["numa_nodes"] = json_of(diagnosis.facts.numa_nodes, diagnosis.nodes);
  json["slow_directory"] = {
      {"path", options.slow}, {"file_system", diagnosis.file_system}, {"chunk_bytes", options.chunk}};
  if (diagnosis.disk_room) json["slow_directory"]["free_bytes"] = diagnosis.disk_room->value;
  if (diagnosis.disk && *diagnosis.disk) {
    const LinkHabits& link = **diagnosis.disk;
    json["slow_directory"]["write_bytes_per_s"] = link.speed.write;
    json["slow_directory"]["read_bytes_per_s"] = link.speed.read;
    json["slow_directory"]["both_bytes_per_s"] = link.speed.mixed;
    json["slow_directory"]["one_bus"] = !link.duplex();
    json["slow_directory"]["reads_in_flight"] = link.reads_in_flight;
    json["slow_directory"]["latency_ns"] = link.latency.value;
    json["slow_directory"]["most_written_a_day_bytes"] = bytes_a_day({link.speed.write}, a_second);
    if (const auto rated = endurance_of(options.endurance))
      json["slow_directory"]["endurance_share_a_day"] = endurance_a_day({link.speed.write}, a_second, rated);
  }
  json["gpus"] = Json::array();
  if (diagnosis.gpus)
    for (const GpuFacts& gpu : *diagnosis.gpus) json["gpus"].push_back(json_of(gpu));
  else
    json["why_no_gpu"] = diagnosis.gpus.error().message;
  if (diagnosis.interference_percent) json["interference_percent"] = *diagnosis.interference_percent;
  if (diagnosis.fault_time) json["fault_ns"] = diagnosis.fault_time->value;
  if (diagnosis.disk && !*diagnosis.disk) json["slow_directory"]["why_not"] = diagnosis.disk->error().message;
  json["uses"] = {{"memory", json_of(diagnosis.uses.memory)},
                  {"tracking", json_of(diagnosis.uses.tracking)},
                  {"transfers", json_of(diagnosis.uses.io)}};
  json["missing"] = Json::array();
  for (const Line& line : lines) {
    if (line.unlocks.empty()) continue;
    json["missing"].push_back(
        {{"subject", not_indented(line.subject)}, {"unlocks", line.unlocks}, {"how", line.remedy}});
  }
  print_data(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void write_machine(const Diagnosis& diagnosis, OutputFile& file, Bytes chunk) {
  if (!diagnosis.disk || !*diagnosis.disk)
    throw Failure({.cause = Cause::unavailable, .message = "a machine needs a disk that was measured; see --slow"});
  const Measured measured{.link = **diagnosis.disk,
                          .remap_time = measure_remap(chunk),
                          .fault_time = diagnosis.fault_time,
                          .interference_percent = diagnosis.interference_percent,
                          .host_bytes_per_s = diagnosis.host_bytes_per_s.value_or(0)};
  file.stream() << format_machine(machine_over(measured, diagnosis.facts.memory, diagnosis.disk_room, chunk),
                                  "this-machine");
  file.finish();
}

void doctor(const DoctorOptions& options) {
  if (constexpr std::uint64_t smallest = (16_KiB).value, largest = (64_MiB).value;
      options.chunk < smallest || options.chunk > largest || !std::has_single_bit(options.chunk))
    throw Failure({.cause = Cause::malformed_input, .message = "--chunk is a power of two between 16KiB and 64MiB"});
  const auto rated = endurance_of(options.endurance);
  auto output = optional_output(options.machine, {});
  std::optional<Progress> progress(std::in_place, "doctor", "tries what this machine can do");
  const Diagnosis diagnosis = examine(options.slow, {options.chunk}, !options.no_disk);
  const std::vector<Line> lines = lines_of(diagnosis, options.slow);
  progress.reset();
  if (options.json) {
    print_json(diagnosis, lines, options);
  } else {
    print_text(diagnosis, lines);
    print_wear(diagnosis, rated);
  }
  std::fflush(stdout);
  if (output) write_machine(diagnosis, *output, {options.chunk});
  for (const Result<std::string>* use : {&diagnosis.uses.memory, &diagnosis.uses.io}) {
    if (!*use) throw Failure({.cause = Cause::unavailable, .message = "cannot train here: " + use->error().message});
  }
}

}  // namespace

void add_doctor(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("doctor", "Tells what this machine can do, and what would make it do more");
  auto options = std::make_shared<DoctorOptions>();  // shared: the callback is copied into the App
  verb->add_option("--slow", options->slow, "directory of the slow tier, whose disk is measured")
      ->capture_default_str();
  verb->add_option("--chunk", options->chunk, "what moves as one: the disk is measured by transfers of this size")
      ->transform(CLI::AsSizeValue(true))
      ->default_str("2MiB");
  verb->add_flag("--no-disk", options->no_disk, "leave the disk alone (it is measured for about ten seconds)");
  verb->add_option("--endurance", options->endurance, "the disk's rating: " + std::string(endurance_usage));
  verb->add_option("-o,--output", options->machine,
                   "write what was measured (vedette-machine-1), for plan, replay and compare");
  verb->add_option("--machine", options->machine)->group("");  // its earlier word
  verb->add_flag("--json", options->json, "as JSON, sizes in bytes");
  verb->callback([options] { doctor(*options); });
}

}  // namespace vedette::cli
