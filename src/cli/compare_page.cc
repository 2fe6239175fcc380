// The table of `vedette compare` as one page: rows, and for each trace the percent of ideal against fast memory. No script, no link.
#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "cli/lab.h"

namespace vedette::cli {
namespace {

constexpr const char* colours[] = {"#4c78a8", "#f58518", "#54a24b", "#b279a2", "#9d755d", "#72b7b2", "#eeca3b", "#ff9da6", "#79706e", "#bab0ac"};

std::string escaped(const std::string& words) {
  std::string safe;
  for (const char c : words) {
    if (c == '<') safe += "&lt;";
    else if (c == '>') safe += "&gt;";
    else if (c == '&') safe += "&amp;";
    else if (c == '"') safe += "&quot;";
    else safe += c;
  }
  return safe;
}

std::string colour_of(const std::string& policy, const std::vector<std::string>& policies) {
  if (policy == "vedette") return "#e45756";
  const auto at = std::find(policies.begin(), policies.end(), policy) - policies.begin();
  return colours[static_cast<std::size_t>(at) % std::size(colours)];
}

// Percent of ideal over fast memory, a line a policy, the bound dashed.
std::string chart(const std::vector<const Row*>& rows) {
  constexpr double left = 50, top = 16, wide = 560, high = 260;
  std::vector<std::string> policies;
  std::map<std::string, std::vector<std::pair<double, double>>> lines;
  double most = 0.01;
  for (const Row* row : rows) most = std::max(most, row->fraction);
  const auto x = [&](double fraction) { return left + wide * fraction / most; };
  const auto y = [&](double percent) { return top + high * (1 - std::clamp(percent, 0.0, 100.0) / 100); };
  for (const Row* row : rows) {
    if (std::find(policies.begin(), policies.end(), row->policy) == policies.end()) policies.push_back(row->policy);
    if (row->replayed) lines[row->policy].emplace_back(row->fraction, row->percent_of_ideal());
    if (row->lower_bound.value > 0)
      lines["(bound)"].emplace_back(row->fraction, 100.0 * static_cast<double>(row->ideal.value) / static_cast<double>(row->lower_bound.value));
  }
  std::string svg = fmt::format("<svg viewBox=\"0 0 800 {}\" width=\"800\" role=\"img\">", top + high + 40);
  for (int percent = 0; percent <= 100; percent += 20) {
    svg += fmt::format("<line x1=\"{0}\" x2=\"{1}\" y1=\"{2}\" y2=\"{2}\" stroke=\"#ddd\"/><text x=\"{3}\" y=\"{4}\" text-anchor=\"end\">{5} %</text>", left,
                       left + wide, y(percent), left - 6, y(percent) + 4, percent);
  }
  double label = top + 10;
  for (auto& [policy, points] : lines) {
    std::sort(points.begin(), points.end());
    const std::string colour = policy == "(bound)" ? "#000" : colour_of(policy, policies);
    std::string path;
    for (const auto& [fraction, percent] : points) path += fmt::format("{:.1f},{:.1f} ", x(fraction), y(percent));
    svg += fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"{} points=\"{}\"/>", colour, policy == "vedette" ? 3 : 1.5,
                       policy == "(bound)" ? " stroke-dasharray=\"4 3\"" : "", path);
    for (const auto& [fraction, percent] : points)
      svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" fill=\"{}\"><title>{}: {:.1f} % of ideal at {:.0f} % of peak</title></circle>", x(fraction),
                         y(percent), colour, escaped(policy), percent, 100 * fraction);
    svg += fmt::format("<text x=\"{}\" y=\"{}\" fill=\"{}\">{}</text>", left + wide + 12, label, colour, escaped(policy));
    label += 13;
  }
  for (const auto& row : rows)
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.0f} %</text>", x(row->fraction), top + high + 16, 100 * row->fraction);
  return svg + fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">fast memory, of the step's peak</text></svg>", left + wide / 2, top + high + 34);
}

std::string table_row(const Row& row) {
  std::string cells = fmt::format("<td>{}</td><td>{}</td><td>{:.1f} %</td><td>{}</td>", escaped(row.trace), readable(row.fast), 100 * row.fraction, escaped(row.policy));
  if (!row.replayed) return "<tr>" + cells + fmt::format("<td colspan=\"8\">{}</td></tr>\n", escaped(row.error));
  const Replayed& got = *row.replayed;
  const auto ms = [](Nanoseconds time) { return static_cast<double>(time.value) / 1e6; };
  const double bound = row.lower_bound.value == 0 ? 100 : 100.0 * static_cast<double>(row.ideal.value) / static_cast<double>(row.lower_bound.value);
  return "<tr>" + cells + fmt::format("<td>{:.2f}</td><td>{:.2f}</td><td>{:.1f}</td><td>{:.1f}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.1f}</td></tr>\n",
                                      row.percent_of_ideal(), bound, ms(got.measured.stall), ms(got.recompute), readable(got.bytes_in), readable(got.bytes_out),
                                      readable(got.peak), ms(row.plan_time));
}

}  // namespace

std::string compare_page(const std::vector<Row>& rows) {
  std::string page =
      "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>vedette compare</title>\n"
      "<style>body{font:14px sans-serif;margin:2em;max-width:70em}table{border-collapse:collapse}td,th{padding:.2em .7em;text-align:right;border-bottom:1px solid "
      "#ddd}td:first-child,td:nth-child(4){text-align:left}svg text{font:11px sans-serif}</style>\n<h1>Policies compared</h1>\n"
      "<p>Percent of the step's time with all its memory fast. The dashed line is proven: no plan can be above it.</p>\n";
  std::vector<std::string> traces;
  for (const Row& row : rows) {
    if (std::find(traces.begin(), traces.end(), row.trace) == traces.end()) traces.push_back(row.trace);
  }
  for (const std::string& trace : traces) {
    std::vector<const Row*> of_trace;
    for (const Row& row : rows) {
      if (row.trace == trace) of_trace.push_back(&row);
    }
    page += "<h2>" + escaped(trace) + "</h2>\n" + chart(of_trace) + "\n";
  }
  page += "<h2>All rows</h2><table><tr><th>trace<th>fast memory<th>of peak<th>policy<th>% of ideal<th>bound<th>stall ms<th>made again ms<th>in<th>out<th>peak<th>planned in ms</tr>\n";
  for (const Row& row : rows) page += table_row(row);
  return page + "</table></html>\n";
}

std::string timeline_svg(const Replayed& replayed, const std::string& title, const Machine& machine) {
  constexpr double left = 110, wide = 1080, high = 18;
  const double total = std::max(1.0, static_cast<double>(replayed.measured.time.value));
  const auto lanes = machine.links.size() + 1;
  std::string svg = fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1200 {0}\" width=\"1200\"><style>text{{font:11px sans-serif}}</style>"
                                "<text x=\"4\" y=\"14\">{1}: {2:.2f} ms, waits red, made again orange</text><text x=\"4\" y=\"39\">ops</text>",
                                40 + 24 * lanes, escaped(title), total / 1e6);
  for (std::size_t l = 0; l < machine.links.size(); ++l)
    svg += fmt::format("<text x=\"4\" y=\"{}\">{} &#8594; {}</text>", 63 + 24 * l, escaped(machine.tiers[machine.links[l].source.value].name),
                       escaped(machine.tiers[machine.links[l].target.value].name));
  for (const Bar& bar : replayed.timeline) {
    const double begin = static_cast<double>(bar.time.begin.value), end = static_cast<double>(bar.time.end.value);
    const double x = left + wide * begin / total, width = std::max(0.15, wide * (end - begin) / total);
    std::size_t lane = 0;
    const char* colour = bar.kind == Bar::Kind::op ? "#4c78a8" : bar.kind == Bar::Kind::wait ? "#e45756" : bar.kind == Bar::Kind::recompute ? "#f58518" : "#72b7b2";
    for (std::size_t l = 0; bar.kind == Bar::Kind::move && l < machine.links.size(); ++l) {
      if (machine.links[l].source == bar.source && machine.links[l].target == bar.target) lane = l + 1;
    }
    svg += fmt::format("<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"/>", x, 26 + 24 * lane, width, high, colour);
  }
  return svg + "</svg>\n";
}

}  // namespace vedette::cli
