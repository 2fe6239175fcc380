// Medians, bars and rows: see train_cells.h.
#include "train_cells.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "vedette/bound.h"

namespace vedette::bench {
namespace {

constexpr std::size_t first_steps = 3;  // the optimizer makes its state, memory is touched for the first time

template <class T>
void append(std::vector<T>& all, const nlohmann::json& run, const char* key, std::size_t first, double factor = 1) {
  const auto values = run.at(key).get<std::vector<std::uint64_t>>();
  for (std::size_t i = first; i < values.size(); ++i)
    all.push_back(static_cast<T>(static_cast<double>(values[i]) * factor));
}

template <class T>
double mean_of(const std::vector<T>& values) {
  if (values.empty()) return 0;
  return static_cast<double>(std::accumulate(values.begin(), values.end(), T{})) / static_cast<double>(values.size());
}

double mib(double bytes) { return bytes / 1048576; }

struct Numbers {  // of a row, in the units of the table
  Spread step;
  double in = 0, out = 0, bound_in = 0, bound_out = 0, stalls = 0, stall_ms = 0, gb_per_s = 0, others = 0;
};
Numbers numbers(const Row& row) {
  Numbers n{.step = spread(row.cell->step_ms),
            .in = mib(mean(row.cell->bytes_in)),
            .out = mib(mean(row.cell->bytes_out)),
            .stalls = mean(row.cell->stalls),
            .stall_ms = mean(row.cell->stall_ms),
            .others = spread(row.cell->others_cores).median};
  if (row.disk != nullptr && row.disk->moves) {
    n.bound_in = mib(static_cast<double>(row.disk->moves->read.value));
    n.bound_out = mib(static_cast<double>(row.disk->moves->written.value));
    n.gb_per_s = spread(row.disk->bytes_per_s).median * 1e-9;
  }
  return n;
}

std::string verdict(const Row& row) {
  if (!row.cell->failure.empty()) return "FAILED: " + row.cell->failure;
  std::string said = row.cell->plain() ? "baseline"
                     : !row.bounded()  ? "no bound: an op needs more"
                     : row.met         ? "met"
                                       : "missed";
  if (!row.cell->plain() && !row.equal) said += ", LOSSES DIFFER";
  if (!row.cell->repeats) said += ", RUNS DIFFER";
  return said;
}

std::string name(const Row& row) {
  const std::string run =
      row.cell->plain() ? "plain" : fmt::format("{} {:g} %", row.cell->policy, row.cell->share * 100);
  return row.cell->step_in_backward ? run + ", early" : run;
}
double against(double baseline_ms, double step_ms) { return step_ms > 0 ? baseline_ms / step_ms : 0; }

}  // namespace

double mean(const std::vector<std::uint64_t>& values) { return mean_of(values); }
double mean(const std::vector<double>& values) { return mean_of(values); }

Spread spread(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const double above = values[std::min(below + 1, values.size() - 1)];
    return values[below] + (place - std::floor(place)) * (above - values[below]);
  };
  return {at(0.25), at(0.5), at(0.75)};
}

void Cell::add(const nlohmann::json& run, double others) {
  const std::size_t first = std::max(first_steps, run.at("planned_from").get<std::size_t>());
  append(step_ms, run, "step_ns", first, 1e-6);
  append(stall_ms, run, "step_stall_ns", first, 1e-6);
  append(bytes_in, run, "step_bytes_in", first);
  append(bytes_out, run, "step_bytes_out", first);
  append(stalls, run, "step_stall_count", first);
  append(faults, run, "step_faults", first);
  others_cores.push_back(others);
  const auto said = run.at("losses").get<std::vector<std::uint32_t>>();
  repeats = repeats && (losses.empty() || losses == said);
  if (losses.empty()) losses = said;
  peak_bytes = std::max(peak_bytes, run.at("peak_bytes").get<std::uint64_t>());
  resident_max_bytes = std::max(resident_max_bytes, run.at("resident_max_bytes").get<std::uint64_t>());
  mechanism = run.at("mechanism").get<std::string>();
  torch = run.at("torch").get<std::string>();
}

int Disk::read_percent() const {
  const Bytes all = moves ? moves->read + moves->written : Bytes{};
  if (all.value == 0) return 0;
  return static_cast<int>(std::lround(100.0 * static_cast<double>(moves->read.value) / static_cast<double>(all.value)));
}

double Disk::step_ms() const {
  const double all = moves ? static_cast<double>((moves->read + moves->written).value) : 0,
               rate = spread(bytes_per_s).median;
  return all > 0 && rate > 0 ? all / rate * 1e3 : 0;
}

void Disk::prove(const Trace& trace, Bytes budget) {
  const double rate = spread(bytes_per_s).median;
  if (rate <= 0) return;
  const auto whole = static_cast<std::uint64_t>(rate);
  Machine machine;
  machine.tiers = {{.name = "dram", .capacity = budget, .addressable = true},
                   {.name = "disk", .capacity = peak_bytes(trace)}};
  machine.links = {{.source = {1}, .target = {0}, .bytes_per_s = whole, .latency = {}, .shared = 0},
                   {.source = {0}, .target = {1}, .bytes_per_s = whole, .latency = {}, .shared = 0}};
  Nanoseconds waits = lower_bound(trace, machine);
  for (const Op& op : trace.ops) waits -= op.time;
  waits_ms = static_cast<double>(waits.value) * 1e-6;
}

Bar bar(double plain_ms, double disk_ms) {
  if (disk_ms <= plain_ms / of_plain) return {plain_ms / of_plain, false};
  return {disk_ms / of_bound, true};
}

std::vector<Row> rows(const std::vector<Cell>& cells, const std::vector<Disk>& disks) {
  std::vector<Row> all;
  const Cell& plain = cells.front();
  for (const Cell& cell : cells) {
    Row row{.cell = &cell, .plain_ms = plain.step(), .equal = cell.losses == plain.losses};
    for (const Disk& disk : disks) {
      if (!cell.plain() && disk.share == cell.share && disk.step_in_backward == cell.step_in_backward) row.disk = &disk;
    }
    const Cell* arena = nullptr;
    for (const Cell& other : cells) {
      if (other.policy == cell.policy && other.step_in_backward == cell.step_in_backward && other.share >= 1 &&
          (arena == nullptr || other.share > arena->share))
        arena = &other;
    }
    if (arena != nullptr) row.arena_ms = arena->step();
    row.bar = row.bounded() ? bar(row.plain_ms, row.disk->step_ms()) : Bar{};
    row.met = row.bounded() && !cell.step_ms.empty() && cell.step() <= row.bar.step_ms;
    all.push_back(row);
  }
  return all;
}

std::string text_head() {
  return fmt::format("{:20} {:>9} {:>22} {:>5} {:>7} {:>7} {:>13} {:>13} {:>10} {:>8} {:>8} {:>15} {:>14} {:>6}  {}",
                     "run", "budget MiB", "step ms (quartiles)", "steps", "x plain", "x arena", "in/out MiB",
                     "bound's MiB", "disk GB/s", "bound ms", "least ms", "bar ms", "stalls, ms", "others", "bar");
}

std::string text(const Row& row) {
  const Numbers n = numbers(row);
  const std::string step = fmt::format("{:.0f} ({:.0f}-{:.0f})", n.step.median, n.step.lower, n.step.upper);
  std::string line =
      fmt::format("{:20} {:>10.0f} {:>22} {:>5} {:>7.3f}", name(row), mib(static_cast<double>(row.cell->budget.value)),
                  step, row.cell->step_ms.size(), against(row.plain_ms, n.step.median));
  if (row.cell->plain()) return fmt::format("{}{:>113.2f}  {}", line, n.others, verdict(row));
  line +=
      row.arena_ms > 0 ? fmt::format(" {:>7.3f}", against(row.arena_ms, n.step.median)) : fmt::format(" {:>7}", "-");
  line += fmt::format(
      " {:>13} {:>13} {:>10.2f} {:>8.0f} {:>8.0f} {:>15} {:>14}", fmt::format("{:.0f}/{:.0f}", n.in, n.out),
      row.bounded() ? fmt::format("{:.0f}/{:.0f}", n.bound_in, n.bound_out) : "none", n.gb_per_s,
      row.disk != nullptr ? row.disk->step_ms() : 0, row.least_ms(),
      row.bounded() ? fmt::format("{:.0f} ({})", row.bar.step_ms, row.bar.by_disk ? "0.85 bound" : "0.95 plain")
                    : "none",
      fmt::format("{:.0f}, {:.0f}", n.stalls, n.stall_ms));
  return fmt::format("{} {:>6.2f}  {}", line, n.others, verdict(row));
}

std::string markdown_head() {
  return "| model | run | budget MiB | step ms (quartiles) | x plain | x arena | in / out MiB a step | bound's MiB | "
         "bound ms "
         "| least ms | bar ms | stalls, ms a step | |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|";
}

std::string markdown(const Row& row) {
  const Numbers n = numbers(row);
  const std::string begin = fmt::format("| {} | {} |", row.cell->model, name(row));
  const std::string step = fmt::format("{:.0f} ({:.0f}-{:.0f})", n.step.median, n.step.lower, n.step.upper);
  if (row.cell->plain())
    return fmt::format("{} (peak {:.0f}) | {} | {:.3f} | | | | | | | | |", begin,
                       mib(static_cast<double>(row.cell->peak_bytes)), step, against(row.plain_ms, n.step.median));
  return fmt::format(
      "{} {:.0f} | {} | {:.3f} | {:.3f} | {:.0f} / {:.0f} | {:.0f} / {:.0f} | {:.0f} | {:.0f} | {:.0f} | {:.0f}, "
      "{:.0f} | {} |",
      begin, mib(static_cast<double>(row.cell->budget.value)), step, against(row.plain_ms, n.step.median),
      against(row.arena_ms, n.step.median), n.in, n.out, n.bound_in, n.bound_out,
      row.disk != nullptr ? row.disk->step_ms() : 0, row.least_ms(), row.bar.step_ms, n.stalls, n.stall_ms,
      verdict(row));
}

nlohmann::ordered_json json(const Row& row) {
  const Cell& cell = *row.cell;
  const Spread step = spread(cell.step_ms);
  nlohmann::ordered_json object = {{"model", cell.model},
                                   {"run", cell.plain() ? "plain" : cell.policy},
                                   {"step_in_backward", cell.step_in_backward},
                                   {"peak_bytes", cell.peak_bytes},
                                   {"resident_max_bytes", cell.resident_max_bytes},
                                   {"step_ms", {{"lower", step.lower}, {"median", step.median}, {"upper", step.upper}}},
                                   {"others_cores", spread(cell.others_cores).median},
                                   {"steps_ms", cell.step_ms},
                                   {"failure", cell.failure}};
  if (cell.plain()) return object;
  object.update({{"budget_share", cell.share},
                 {"budget_bytes", cell.budget.value},
                 {"x_plain", against(row.plain_ms, step.median)},
                 {"x_arena", against(row.arena_ms, step.median)},
                 {"bytes_in", mean(cell.bytes_in)},
                 {"bytes_out", mean(cell.bytes_out)},
                 {"stall_count", mean(cell.stalls)},
                 {"stall_ms", mean(cell.stall_ms)},
                 {"faults", mean(cell.faults)},
                 {"mechanism", cell.mechanism},
                 {"losses_equal", row.equal && cell.repeats}});
  if (!row.bounded()) return object;
  object.update({{"bar_ms", row.bar.step_ms},
                 {"bar_by", row.bar.by_disk ? "disk" : "plain"},
                 {"met", row.met},
                 {"bound_read", row.disk->moves->read.value},
                 {"bound_written", row.disk->moves->written.value},
                 {"disk_bytes_per_s", spread(row.disk->bytes_per_s).median},
                 {"disk_read_percent", row.disk->read_percent()},
                 {"bound_ms", row.disk->step_ms()},
                 {"least_ms", row.least_ms()}});
  return object;
}

}  // namespace vedette::bench
