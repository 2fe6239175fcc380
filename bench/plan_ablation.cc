// What is each part of our planner worth? Percent of ideal of steps planned with one part left out at a time, and with
// none of them.
//
//   plan_ablation TRACE.json...
//
// Steps: a GPT and a ResNet-18 with Adam (made as in plan_table) at 20 % of their peak, beside a disk of 1.8 GB/s each
// way. Then each given trace twice. First with 40 GiB beside links of 15.754 GB/s to a memory without end. Then on the
// preset of G10's machine, whose host memory is limited and which can recompute. Replays are exact, so one run is
// enough on any machine. Prints a table in Markdown.
#include <fmt/core.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "plan_shapes.h"
#include "policy/vedette/features.h"
#include "vedette/machine.h"
#include "vedette/replay.h"

namespace {

using namespace vedette;
using planning::Features;

struct Row {
  const char* name;
  Features features;
};

std::vector<Row> rows() {
  return {{"all", {}},
          {"without parts", {.parts = false}},
          {"without cleaning ahead", {.cleaning = false}},
          {"without looking ahead", {.looking_ahead = false}},
          {"without issuing early", {.issuing_early = false}},
          {"without covers", {.covering = false}},
          {"without recomputing", {.recomputing = false}},
          {"without shares, going around and chance", {.searching = false}},
          {"none of them",
           {.parts = false,
            .cleaning = false,
            .looking_ahead = false,
            .issuing_early = false,
            .searching = false,
            .covering = false,
            .recomputing = false}}};
}

struct Column {
  std::string name;
  Trace trace;
  Machine machine;
};

Machine two_tiers(Bytes capacity, double gb_per_s, std::uint64_t granule) {
  const auto link = [&](std::uint32_t from, std::uint32_t to) {
    return Link{.source = {from},
                .target = {to},
                .bytes_per_s = static_cast<std::uint64_t>(gb_per_s * 1e9),
                .latency = {20'000},
                .shared = {}};
  };
  Machine machine;
  machine.tiers = {{.name = "fast", .capacity = capacity}, {.name = "slow", .capacity = {std::uint64_t{1} << 50}}};
  machine.links = {link(1, 0), link(0, 1)};
  machine.granule = {granule};
  machine.interference_percent = 0;  // as the replay's percents count
  return machine;
}

Column made(const char* name, Trace trace) {
  const Machine machine = two_tiers({peak_bytes(trace).value / 5}, 1.8, std::uint64_t{2} << 20);
  return {.name = fmt::format("{}, 20 %", name), .trace = std::move(trace), .machine = machine};
}

std::string percent_of_ideal(const Column& column, const Features& features) {
  const auto policy = planning::make_vedette_with(features);
  const auto replayed = replay(column.trace, column.machine, *policy);
  if (!replayed) return "fails";
  return fmt::format("{:.1f}", 100.0 * static_cast<double>(replayed->ideal.value) /
                                   static_cast<double>(replayed->measured.time.value));
}

}  // namespace

int main(int count, char** words) {
  std::vector<Column> columns;
  columns.push_back(made("GPT", bench::gpt_step()));
  columns.push_back(made("ResNet-18", bench::resnet_step()));
  const Machine preset = machine_presets().front().make();
  for (int i = 1; i < count; ++i) {
    std::ifstream file(words[i], std::ios::binary);
    const auto trace = parse_trace(std::string(std::istreambuf_iterator<char>(file), {}));
    if (!trace) return fmt::print(stderr, "{}: {}\n", words[i], trace.error().message), 1;
    columns.push_back({.name = trace->name + ", two tiers",
                       .trace = *trace,
                       .machine = two_tiers({std::uint64_t{40} << 30}, 15.754, 4096)});
    columns.push_back({.name = trace->name + ", preset", .trace = *trace, .machine = preset});
  }
  std::string head = "| |", line = "|---|";
  for (const Column& column : columns) head += fmt::format(" {} |", column.name), line += "---|";
  fmt::print("{}\n{}\n", head, line);
  for (const Row& row : rows()) {
    std::string cells;
    for (const Column& column : columns) cells += fmt::format(" {} |", percent_of_ideal(column, row.features));
    fmt::print("| {} |{}\n", row.name, cells);
    std::fflush(stdout);
  }
}
