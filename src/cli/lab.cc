// Reading the laboratory's traces and machines, and one run of one policy.
#include "cli/lab.h"

#include <fmt/core.h>
#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/time_limit.h"
#include "cli/beside.h"
#include "cli/disk_speed.h"
#include "cli/host_speed.h"
#include "cli/nearest.h"
#include "cli/own_policy.h"
#include "cli/plan_file.h"
#include "cli/print.h"
#include "os/probe.h"
#include "profiler/exports.h"
#include "profiler/foreign.h"
#include "profiler/imports.h"
#include "profiler/recording.h"
#include "profiler/report/report.h"
#include "profiler/schema.h"
#include "tier/store.h"

namespace vedette::cli {
namespace {

// Memory over the disk of a directory, as a session there would find them.
Machine this_machine(const std::string& directory) {
  const MachineFacts facts = probe_machine();
  auto store = open_nvme_store({.directory = directory}).value();
  const Measured measured{.link = measure_disk(*store, false).value(),
                          .remap_time = measure_remap(store->slot_bytes()),
                          .fault_time = measure_fault(store->slot_bytes()),
                          .interference_percent = measure_interference(*store).value(),
                          .host_bytes_per_s = measure_host_memory()};
  struct statvfs room {};
  const bool known = ::statvfs(directory.c_str(), &room) == 0;
  return machine_over(measured, facts.memory,
                      known ? std::optional(Bytes{room.f_bavail * room.f_frsize}) : std::nullopt, store->slot_bytes());
}

// Times prepare(), by its processor, and is the policy otherwise.
class Timed final : public Policy {
 public:
  explicit Timed(std::unique_ptr<Policy> policy) : policy_(std::move(policy)) {}
  std::string_view name() const noexcept override { return policy_->name(); }
  Result<Plan> prepare(const Trace& trace, const Machine& machine) override {
    const auto began = TimeLimit::worked();
    auto plan = policy_->prepare(trace, machine);
    if (time_.value == 0) time_ = {(TimeLimit::worked() - began).count()};
    return plan;
  }
  Reaction react(const Event& event, const View& view) override { return policy_->react(event, view); }
  Nanoseconds time() const { return time_; }

 private:
  std::unique_ptr<Policy> policy_;
  Nanoseconds time_;
};

}  // namespace

std::string read_file(const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  if (!file) throw Failure({Cause::system, name + " cannot be opened; is the path right?"});
  if (std::error_code unknown; std::filesystem::is_directory(name, unknown))
    throw Failure({Cause::system, name + " cannot be read; it is a directory"});
  std::string text;
  for (std::array<char, 65536> part; file.read(part.data(), part.size()), file.gcount() > 0;)
    text.append(part.data(), static_cast<std::size_t>(file.gcount()));
  if (file.bad()) throw Failure({Cause::system, name + " cannot be read: " + std::strerror(errno)});
  if (text.empty()) throw malformed(name + " is empty");
  return text;
}

Trace read_trace(const std::string& file) { return trace_of(file, read_file(file)); }

Trace trace_of(const std::string& file, std::string text) {
  if (text.starts_with(sqlite_files_begin)) {
    std::ostringstream out;
    export_recording(file, "trace", {}, out).value();
    text = std::move(out).str();
  }
  if (text.starts_with("\x1f\x8b")) {
    text = value_of(file, unpacked(std::move(text)));
  }
  return value_of(file, is_foreign(text) ? parse_foreign(text) : parse_trace(text));
}

void print_assumptions(const Trace& trace, bool beside_json) {
  if (!has_assumptions(trace)) return;
  if (beside_json)
    print_to(stderr, "vedette: {}\n", trace.notes.front());
  else
    print("{}\n", trace.notes.front());
}

Rows read_rows(const std::string& file, const Trace& trace) {
  return value_of(file, parse_rows(read_file(file), trace));
}

Plan read_plan(const std::string& file, const Trace& trace) {
  return value_of(file, parse_plan(read_file(file), trace));
}

Machine read_machine(const std::string& what, const std::string& directory) {
  for (const MachinePreset& preset : machine_presets()) {
    if (preset.name == what) return preset.make();
  }
  if (what == "this-machine") return this_machine(directory);
  if (std::error_code unknown; !std::filesystem::exists(what, unknown)) {
    std::vector<std::string> known;
    for (const MachinePreset& preset : machine_presets()) known.emplace_back(preset.name);
    known.emplace_back("this-machine");
    throw malformed(fmt::format("there is no machine '{}'{}, neither a preset ({}) nor a file", what,
                                did_you_mean(what, known), fmt::join(known, ", ")));
  }
  return value_of(what, parse_machine(read_file(what)));
}

Chosen machine_for(const std::string& trace_file, const std::string& what, const std::string& directory) {
  if (!what.empty()) return {read_machine(what, directory), what};
  if (begins_as_recording(trace_file)) {
    const report::Run run = value_of(trace_file, report::load_run(trace_file));
    if (run.machine.tiers.size() > 1) return {report::machine_of_session(run), "the recording's own"};
  }
  return {read_machine(default_machine, directory), default_machine};
}

std::string tiers_and_links(const Machine& machine) {
  std::string tiers, links;
  for (const Tier& tier : machine.tiers) {
    const bool endless = tier.capacity.value >= std::uint64_t{1} << 50;  // a sparse file's limit and more
    tiers += fmt::format("{}{} {}", tiers.empty() ? "" : ", ", tier.name,
                         endless ? "without limit" : readable(tier.capacity));
  }
  for (const Link& link : machine.links)
    links += fmt::format("{}{} to {} {:.3g} GB/s", links.empty() ? "; " : ", ", machine.tiers[link.source.value].name,
                         machine.tiers[link.target.value].name, static_cast<double>(link.bytes_per_s) / 1e9);
  if (const HostMemory& host = machine.host_memory; host.bytes_per_s != 0) {
    links += fmt::format("; together {:.3g} GB/s of {}", static_cast<double>(host.left_for_links()) / 1e9,
                         machine.tiers[host.tier.value].name);
    if (host.processor_bytes_per_s != 0)
      links += fmt::format(" beside the processor's {:.3g}", static_cast<double>(host.processor_bytes_per_s) / 1e9);
  }
  return tiers + links;
}

void print_machine(const Chosen& chosen) { print("machine: {} ({})\n", chosen.name, tiers_and_links(chosen.machine)); }

std::string machine_words() {
  std::string names;
  for (const MachinePreset& preset : machine_presets()) names.append(names.empty() ? "" : ", ").append(preset.name);
  return "a preset (" + names +
         "), this-machine, or a file in the format vedette-machine-1 (default: a recording's own, else " +
         default_machine + ")";
}

Bytes read_size(const std::string& words, const Trace& trace) {
  char* end = nullptr;
  const double number = std::strtod(words.c_str(), &end);
  std::string unit(end);
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::pair<const char*, double> units[] = {
      {"", 1},         {"b", 1},    {"kib", 0x1p10}, {"mib", 0x1p20}, {"gib", 0x1p30},
      {"tib", 0x1p40}, {"kb", 1e3}, {"mb", 1e6},     {"gb", 1e9},     {"tb", 1e12}};
  if (end != words.c_str() && std::isfinite(number) && number > 0) {
    const double part = static_cast<double>(peak_bytes(trace).value) * number / 100;
    if (unit == "%" && part >= 1 && part < 1e18) return {static_cast<std::uint64_t>(part)};
    for (const auto& [name, factor] : units) {
      if (unit == name && number * factor >= 1 && number * factor < 1e18)
        return {static_cast<std::uint64_t>(number * factor)};
    }
  }
  throw malformed("'" + words + "' is no size; write 20% (of the trace's peak), 512MiB, 40GB or bytes");
}

std::vector<std::string> split(const std::string& words, char at) {
  std::vector<std::string> found;
  std::istringstream stream(words);
  for (std::string word; std::getline(stream, word, at);) {
    if (!word.empty()) found.push_back(word);
  }
  return found;
}

std::vector<PolicyEntry> policies_named(const std::string& names) {
  const auto all = policies();
  std::vector<PolicyEntry> found;
  for (const std::string& name : split(names, ',')) {
    if (name == "all") {
      found.insert(found.end(), all.begin(), all.end());
      continue;
    }
    if (names_a_library(name)) {
      found.push_back(own_policy(name));
      continue;
    }
    const auto entry = std::find_if(all.begin(), all.end(), [&](const PolicyEntry& each) { return each.name == name; });
    if (entry == all.end()) {
      std::vector<std::string> known;
      for (const PolicyEntry& each : all) known.emplace_back(each.name);
      throw malformed(fmt::format("there is no policy '{}'{}; there are {}", name, did_you_mean(name, known),
                                  fmt::join(known, ", ")));
    }
    found.push_back(*entry);
  }
  if (found.empty()) throw malformed("no policy is named; write all, or names with commas");
  return found;
}

void require_room(const Trace& trace, const Machine& machine) {
  const Bytes need = largest_op_bytes(trace), room = machine.tiers[0].capacity;
  if (need <= room) return;
  throw Failure(
      {Cause::infeasible,
       fmt::format("the largest op of {} needs {} of fast memory at once, and there are {}; give it that many",
                   trace.name, readable_exactly(need), readable_exactly(room))});
}

std::string marked(const PolicyEntry& entry) {
  return std::string(entry.name) + (entry.bound ? " (fewest bytes)" : entry.partial.empty() ? "" : " *");
}

std::string marked(const PolicyEntry& entry, const Row& row) { return marked(entry) + (row.paged() ? " ~" : ""); }

bool all_alike(std::span<const Row> rows) {
  std::vector<std::int64_t> times;
  for (const Row& row : rows)
    if (row.replayed) times.push_back(row.replayed->measured.time.value);
  if (times.size() < 2) return false;
  const auto [least, most] = std::minmax_element(times.begin(), times.end());
  return static_cast<double>(*most) <= 1.01 * static_cast<double>(*least);
}

double percent_of_ideal(const Replayed& ran) {
  return 100.0 * static_cast<double>(ran.ideal.value) /
         static_cast<double>(std::max<std::int64_t>(1, ran.measured.time.value));
}

double Row::percent_of_ideal() const {
  if (!replayed || replayed->measured.time.value == 0) return 0;
  return 100.0 * static_cast<double>(ideal.value) / static_cast<double>(replayed->measured.time.value);
}

Row run_policy(const Trace& trace, const Machine& machine, const PolicyEntry& entry, std::uint64_t seed,
               const ReplayOptions& options) {
  Row row{.trace = trace.name, .policy = std::string(entry.name), .fast = machine.tiers[0].capacity};
  row.fraction = static_cast<double>(row.fast.value) / std::max(1.0, static_cast<double>(peak_bytes(trace).value));
  for (const Op& op : trace.ops) row.ideal += op.time;
  if (largest_op_bytes(trace) > row.fast) {
    row.error = fmt::format("infeasible: the largest op needs {} of fast memory at once",
                            readable_exactly(largest_op_bytes(trace)));
    return row;
  }
  Timed policy(entry.make(seed));
  auto replayed = replay(trace, machine, policy, options);
  row.plan_time = policy.time();
  if (replayed) {
    row.replayed = *std::move(replayed);
  } else {
    row.failed = replayed.error().cause != Cause::infeasible;
    row.error = fmt::format("{}{}", replayed.error().cause == Cause::infeasible ? "infeasible: " : "",
                            replayed.error().message);
  }
  return row;
}

}  // namespace vedette::cli
