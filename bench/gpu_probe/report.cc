// Cells, rows, the file and the table: see report.h.
#include "gpu_probe/report.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>

#include "gpu_probe/library.h"

namespace vedette::gpu {
namespace {

double at_share(const std::vector<double>& sorted, double share) {
  const double position = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(position));
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (position - static_cast<double>(below));
}

// Ends the process when a cell takes too long: the driver may wait for ever, and a thread of it cannot be stopped.
class Watchdog {
 public:
  explicit Watchdog(double limit_s) : thread_([limit_s](const std::stop_token& stop) { watch(stop, limit_s); }) {}

 private:
  static void watch(const std::stop_token& stop, double limit_s) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_s);
    while (!stop.stop_requested()) {
      if (std::chrono::steady_clock::now() > end) ::_exit(Recorder::timed_out);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  std::jthread thread_;
};

std::string text_of(const Json& setting) {
  std::string text;
  for (const auto& [key, value] : setting.items()) {
    if (!text.empty()) text += ' ';
    text.append(key).append("=").append(value.is_string() ? value.get<std::string>() : value.dump());
  }
  return text;
}

std::string finding_of(const Json& row) {
  if (row.contains("refused")) return "refused: " + row["refused"].get<std::string>();
  if (row.contains("value")) return row["value"].is_string() ? row["value"].get<std::string>() : row["value"].dump();
  char line[160];
  std::snprintf(line, sizeof line, "%12.4g %-6s %10.4g %10.4g %5d", row["median"].get<double>(),
                row["unit"].get<std::string>().c_str(), row["p10"].get<double>(), row["p90"].get<double>(),
                row["n"].get<int>());
  return line;
}

}  // namespace

Spread spread(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  return {.median = at_share(samples, 0.5),
          .p10 = at_share(samples, 0.1),
          .p90 = at_share(samples, 0.9),
          .n = samples.size()};
}

Recorder::Recorder(Options options) : options_(std::move(options)) {
  if (!options_.file.empty()) file_.open(options_.file, std::ios::app);
}

void Recorder::write(const Json& line) {
  // flushed: we may die
  if (file_.is_open()) file_ << line.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
}

void Recorder::measure(int point, const std::string& name, const Json& setting, const std::vector<Quantity>& quantities,
                       const std::function<void(Cell&)>& body) {
  if (cells_++ < options_.skip) return;
  const Json key{{"point", point}, {"name", name}, {"setting", setting}};
  write({{"began", key}});
  Cell cell;
  std::string refused = "nothing was measured";
  {
    const Watchdog watchdog(options_.cell_limit_s);
    try {
      body(cell);
    } catch (const std::exception& error) {
      refused = error.what();
    }
  }
  Json rows = Json::array();
  for (const Quantity& quantity : quantities) {
    Json row = key;
    row["quantity"] = quantity.name;
    if (*quantity.unit != '\0') row["unit"] = quantity.unit;
    if (const auto fact = cell.facts_.find(quantity.name); fact != cell.facts_.end()) {
      row["value"] = fact->second;
    } else if (const Spread found = spread(cell.samples_[quantity.name]); found.n > 0) {
      row.update({{"median", found.median}, {"p10", found.p10}, {"p90", found.p90}, {"n", found.n}});
    } else {
      row["refused"] = refused;
    }
    rows_.push_back(row);
    rows.push_back(std::move(row));
  }
  write({{"ended", std::move(rows)}});
}

Json rows_of(std::istream& lines, const std::string& why, std::uint64_t& cells) {
  Json rows = Json::array(), open;
  const auto give_up = [&] {
    if (open.is_null()) return;
    open["quantity"] = "all";
    open["refused"] = why;
    rows.push_back(std::move(open));
    open = nullptr;
  };
  for (std::string line; std::getline(lines, line);) {
    Json said = Json::parse(line, nullptr, false);
    if (said.contains("began")) {
      give_up();
      ++cells;
      open = said["began"];
    } else if (said.contains("ended")) {
      open = nullptr;
      for (Json& row : said["ended"]) rows.push_back(std::move(row));
    }
  }
  give_up();
  return rows;
}

std::string table(const Json& rows) {
  std::string text;
  int point = -1;
  for (const Json& row : rows) {
    if (row["point"].get<int>() != point) {
      point = row["point"].get<int>();
      char head[200];
      std::snprintf(head, sizeof head, "\npoint %d%-75s %12s %-6s %10s %10s %5s\n", point, "", "median", "unit", "p10",
                    "p90", "n");
      text += head;
    }
    char line[160];
    std::snprintf(line, sizeof line, "%-16s %-18s %-46s ", row["name"].get<std::string>().c_str(),
                  row["quantity"].get<std::string>().c_str(), text_of(row["setting"]).c_str());
    text.append(line).append(finding_of(row)).append("\n");
  }
  return text;
}

}  // namespace vedette::gpu
