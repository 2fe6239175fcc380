// A report as one HTML document: the page's parts and the charts' library, embedded when this was built, around the
// report's JSON.
#include <algorithm>
#include <optional>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "profiler/report/assets.h"
#include "profiler/report/beside.h"
#include "profiler/report/report.h"

namespace vedette::report {

namespace {

// A script element ends at the first "</script", whatever the JSON around it means, and "<!--" changes how it is read:
// no "<" is left.
std::string in_script(const std::string& json) {
  std::string safe;
  safe.reserve(json.size() + json.size() / 64);
  for (const char c : json) {
    if (c == '<')
      safe += "\\u003c";
    else
      safe += c;
  }
  return safe;
}

constexpr std::size_t most_tensors = 20'000;  // 6 MB of page; a hundred thousand would take a browser seconds

std::string figures(const Report& report, const Report* other) {
  const auto fits = [](const Report* r) { return r == nullptr || r->tensors.size() <= most_tensors; };
  if (fits(&report) && fits(other)) return format_json(report, other);
  // All tensors count where two runs differ.
  std::optional<Beside> beside;
  if (other != nullptr) beside = beside_of(report, *other), shorten(*beside, most_tensors / 4);
  Report shorter = report, other_shorter = other != nullptr ? *other : Report{};
  shorten(shorter, most_tensors);
  shorten(other_shorter, most_tensors);
  return format_json(shorter, other != nullptr ? &other_shorter : nullptr, beside ? &*beside : nullptr);
}

}  // namespace

void shorten(Report& report, std::size_t most) {
  if (report.tensors.size() <= most) return;
  std::vector<const TensorRow*> rows;
  for (const TensorRow& row : report.tensors) rows.push_back(&row);
  const auto moved = [](const TensorRow& row) { return row.fetches + row.evictions; };
  std::stable_sort(rows.begin(), rows.end(), [&](const TensorRow* a, const TensorRow* b) {
    return std::tuple(moved(*b), b->bytes) < std::tuple(moved(*a), a->bytes);
  });
  rows.resize(most);
  std::unordered_set<std::uint32_t> kept;
  for (const TensorRow* row : rows) kept.insert(row->tensor);
  for (const HeatRow& row : report.heat.rows) kept.insert({row.first_tensor, row.last_tensor});
  const auto left_out = [&](const auto& row) { return !kept.contains(row.tensor); };
  std::erase_if(report.prices.tensors, left_out);
  report.tensors_left_out += std::erase_if(report.tensors, left_out);
  report.heat.ranges_left_out += std::erase_if(report.heat.ranges, left_out);
  std::erase_if(report.heat.order, [&](std::uint32_t tensor) { return !kept.contains(tensor); });
}

bool page_has_charts() noexcept { return !charts_script().empty(); }

std::string format_page(const Report& report, const Report* other) {
  std::string_view page = page_html();
  std::string out;
  std::size_t at = 0;
  const auto fill = [&](std::string_view mark, std::string_view with) {
    const std::size_t found = page.find(mark, at);
    if (found == std::string_view::npos) return;
    out.append(page, at, found - at).append(with);
    at = found + mark.size();
  };
  fill("/*{style}*/", page_css());
  fill("{data}", in_script(figures(report, other)));
  fill("/*{charts}*/", charts_script());
  fill("/*{script}*/", "");
  const std::string_view rest = page.substr(at);
  page = page_js(), at = 0;
  fill("/*{map}*/", map_js());
  fill("/*{prices}*/", prices_js());
  fill("/*{timeline}*/", timeline_js());
  fill("/*{beside}*/", beside_js());
  return out.append(page, at, page.size() - at).append(rest);
}

}  // namespace vedette::report
