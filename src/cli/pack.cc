// vedette pack FILE: offsets for lifetimes (a CSV, a trace, or a recording). Beside their peak stand the most bytes
// that live at once, and the peak of a pool that does not know the future.
#include <fmt/core.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/readable.h"
#include "cli/lab.h"
#include "cli/output_file.h"
#include "cli/print.h"
#include "cli/verbs.h"
#include "pack/csv.h"
#include "pack/from_trace.h"
#include "pack/offsets.h"
#include "pack/online_pool.h"
#include "pack/sections.h"
#include "pack/verify.h"
#include "profiler/foreign.h"
#include "profiler/schema.h"

namespace vedette::cli {
namespace {

struct PackOptions {
  std::string file, out;
  std::optional<std::uint64_t> capacity;
  std::uint64_t alignment = 1, chunk = 0, effort = 0;
  bool json = false;
};

// The table views `text`; a trace's names it views in `names`.
pack::Table read_lives(const std::string& path, const std::string& text, std::vector<std::string>& names, bool json) {
  const std::size_t first = text.find_first_not_of(" \n\r\t");
  const bool is_trace = text.starts_with(sqlite_files_begin) || text.starts_with("\x1f\x8b") || is_foreign(text) ||
                        (first != std::string::npos && text[first] == '{');
  if (!is_trace) return value_of(path, pack::parse_lifetimes(text));
  const Trace trace = trace_of(path, text);
  print_assumptions(trace, json);
  pack::TraceLives lives = pack::lives_of(trace);
  names = std::move(lives.id);
  for (std::string& name : names)
    for (char& c : name)
      if (c == ',' || c == '\n' || c == '\r') c = ' ';
  return {.problem = std::move(lives.problem), .id = {names.begin(), names.end()}};
}

struct Measured {
  std::uint64_t ns = 0, cpu_ns = 0;  // of planning alone
};

pack::Layout plan(const pack::Problem& problem, const PackOptions& options, Measured& measured) {
  const auto cpu = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
  };
  const auto begin = std::chrono::steady_clock::now();
  const std::uint64_t cpu_begin = cpu();
  const auto capacity = options.capacity ? std::optional{Bytes{*options.capacity}} : std::nullopt;
  pack::Layout layout = pack::plan_offsets(problem, capacity,
                                           {.greedy = options.effort * 1'000'000, .exact = options.effort * 1'000'000});
  measured.cpu_ns = cpu() - cpu_begin;
  measured.ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count());
  return layout;
}

void print_pack(const PackOptions& options) {
  auto out = optional_output(options.out, {options.file});
  const std::string text = read_file(options.file);
  std::vector<std::string> names;
  pack::Table table = read_lives(options.file, text, names, options.json);
  pack::Problem& problem = table.problem;
  problem.chunk = options.chunk;
  for (pack::Buffer& buffer : problem.buffers) buffer.alignment = std::max(buffer.alignment, options.alignment);
  Measured measured;
  const pack::Layout layout = plan(problem, options, measured);
  const auto capacity = options.capacity ? std::optional{Bytes{*options.capacity}} : std::nullopt;
  const auto fault = pack::find_fault(problem, layout.offset, capacity);
  const std::uint64_t live = pack::most_live(problem).value, pool = pack::online_pool_peak(problem).value;
  const auto ratio = [&](std::uint64_t bytes) {
    return live == 0 ? 1.0 : static_cast<double>(bytes) / static_cast<double>(live);
  };
  if (out) {
    out->stream() << pack::format_layout(table, layout.offset);
    out->finish();
  }
  if (options.json) {
    const nlohmann::ordered_json row{{"n", problem.buffers.size()}, {"live_max", live},
                                     {"peak", layout.peak.value},   {"ratio", ratio(layout.peak.value)},
                                     {"ns", measured.ns},           {"valid", !fault},
                                     {"cpu_ns", measured.cpu_ns},   {"bound", layout.bound.value},
                                     {"how", layout.how},           {"pool_peak", pool},
                                     {"pool_ratio", ratio(pool)},   {"fault", fault.value_or("")}};
    print_data(row.dump(2) + "\n");
  } else {
    print("buffers    {}\nlive_max   {}\npeak       {}\nratio      {:.5f}\n", problem.buffers.size(), live,
          layout.peak.value, ratio(layout.peak.value));
    print("bound      {}{}\nfound by   {}\ntime       {:.2f} ms ({:.2f} ms of CPU)\n", layout.bound.value,
          layout.peak <= layout.bound ? " (reached: no plan is lower)" : "", layout.how,
          static_cast<double>(measured.ns) / 1e6, static_cast<double>(measured.cpu_ns) / 1e6);
    print("valid      {}\nonline     {} ({:.5f}), a best-fit pool\n", fault ? "no: " + *fault : "yes", pool,
          ratio(pool));
  }
  if (!options.capacity || layout.peak.value <= *options.capacity) return;
  throw Failure(
      {Cause::infeasible,
       fmt::format("no plan within {} was found, the best needs {}{}", readable_exactly({*options.capacity}),
                   readable_exactly(layout.peak),
                   layout.bound.value > *options.capacity ? "; there is none" : "; more --effort may find one")});
}

}  // namespace

void add_pack(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("pack", "Finds offsets for lifetimes, as low as can be");
  auto options = std::make_shared<PackOptions>();  // shared: the callback is copied into the App
  verb->add_option("file", options->file,
                   "lifetimes (CSV: id,lower,upper,size and maybe alignment,gaps), a trace (vedette-trace-1), a "
                   "recording, or an "
                   "execution trace or memory snapshot of PyTorch")
      ->required();
  verb->add_option("--capacity", options->capacity,
                   "bytes that are enough; without it, the peak is made as low as can be")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 60));
  verb->add_option("-o,--output", options->out, "write the lifetimes with their offsets to this CSV");
  verb->add_option("--out", options->out)->group("");  // its earlier word
  verb->add_option("--alignment", options->alignment, "every offset is a multiple of this")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40));
  verb->add_option("--chunk", options->chunk, "nobody touches more chunks of so many bytes than needed")
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 40));
  verb->add_option("--effort", options->effort, "millions of steps to search, about a millisecond each (0: as fits)")
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1'000'000}));
  verb->add_flag("--json", options->json, "print one JSON object");
  verb->callback([options] { print_pack(*options); });
}

}  // namespace vedette::cli
