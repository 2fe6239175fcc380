// vedette reproduce pack: where the given lifetimes lie, and how near that is to the most bytes that live at once. No
// times: those are bench/pack_table's.
#include <fmt/core.h>

#include <charconv>

#include "cli/lab.h"
#include "cli/reproduce.h"
#include "pack/csv.h"
#include "pack/offsets.h"
#include "pack/online_pool.h"
#include "pack/sections.h"
#include "pack/verify.h"

namespace vedette::cli {
namespace {

// NAME.CAPACITY: to be placed within that many bytes.
std::optional<Bytes> capacity_of(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  std::uint64_t bytes = 0;
  if (dot == std::string::npos) return std::nullopt;
  const char* const end = name.data() + name.size();
  const auto read = std::from_chars(name.data() + dot + 1, end, bytes);
  return read.ec == std::errc() && read.ptr == end ? std::optional(Bytes{bytes}) : std::nullopt;
}

Json packed(const std::string& path, const std::string& name) {
  const std::string text = read_file(path);
  const pack::Table table = value_of(path, pack::parse_lifetimes(text));
  const pack::Problem& problem = table.problem;
  const auto capacity = capacity_of(name);
  const pack::Layout layout = pack::plan_offsets(problem, capacity);
  const Bytes live = pack::most_live(problem);
  return {{"buffers", problem.buffers.size()},
          {"capacity", capacity ? Json(capacity->value) : Json()},
          {"live_max", live.value},
          {"peak", layout.peak.value},
          {"bound", layout.bound.value},
          {"pool", pack::online_pool_peak(problem).value},
          {"how", layout.how},
          {"valid", !pack::find_fault(problem, layout.offset).has_value()}};
}

}  // namespace

Reproduced reproduce_pack(const ReproduceOptions& options) {
  const std::string folder = data_folder(options, {"pack"});
  Reproduced made{.title = "Offsets for known lifetimes"};
  std::vector<Cell> cells;
  for (const std::string& name : names_in(options, folder, ".csv")) {
    const std::string path = folder + "/" + name + ".csv";
    made.inputs.push_back(read_input(name + ".csv", path));
    cells.push_back({.name = name, .inputs = made.inputs.back().sha256 + " " + name, .compute = [path, name] {
                       return packed(path, name);
                     }});
  }
  if (cells.empty()) throw malformed(folder + " has no lifetimes (.csv) of that name");
  const auto results = compute_cells(cells_folder(options), cells, options.threads, "reproduce", made.counts);
  std::vector<std::vector<std::string>> rows{
      {"instance", "buffers", "capacity", "most alive", "peak", "peak / alive", "pool / alive", "found by", "valid"}};
  std::vector<double> ratios, pools;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Json& got = results[i];
    const auto live = got["live_max"].get<double>();
    ratios.push_back(got["peak"].get<double>() / live);
    pools.push_back(got["pool"].get<double>() / live);
    rows.push_back({cells[i].name, fmt::format("{}", got["buffers"].get<std::uint64_t>()),
                    got["capacity"].is_null() ? "" : fmt::format("{}", got["capacity"].get<std::uint64_t>()),
                    fmt::format("{}", got["live_max"].get<std::uint64_t>()),
                    fmt::format("{}", got["peak"].get<std::uint64_t>()), fmt::format("{:.4f}", ratios.back()),
                    fmt::format("{:.4f}", pools.back()), got["how"].get<std::string>(),
                    got["valid"].get<bool>() ? "yes" : "NO"});
  }
  rows.push_back({"geometric mean", "", "", "", "", fmt::format("{:.4f}", geometric_mean(ratios)),
                  fmt::format("{:.4f}", geometric_mean(pools)), "", ""});
  made.text = markdown_table(rows);
  std::vector<BarGroup> groups;
  for (std::size_t i = 0; i < cells.size(); ++i)
    groups.push_back({.name = cells[i].name, .values = {100 / ratios[i], 100 / pools[i]}});
  const std::string svg =
      bars_svg({"vedette", "online best-fit pool"}, groups, "bytes alive at once, in percent of the highest byte used");
  made.files = {{"pack.md", made.text}, {"pack.csv", csv_table(rows)}, {"pack.svg", svg}};
  made.body =
      "<p>The most bytes that live at once, in percent of the highest byte in use: 100 % wastes nothing. The pool "
      "does not know the future.</p>\n<div class=\"scroll\">" +
      svg + html_table(rows) + "</div>\n";
  return made;
}

}  // namespace vedette::cli
