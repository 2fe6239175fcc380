// The table of `vedette compare` as one page: for each trace the step time against fast memory, a line a policy, one
// step under two policies, and its rows. No script, no link: a line shows its name and comes forward under the pointer.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "cli/html.h"
#include "cli/lab.h"

namespace vedette::cli {
namespace {

constexpr std::array colours = {"#4c78a8", "#f58518", "#54a24b", "#b279a2", "#9d755d",
                                "#439894", "#c9a227", "#d67195", "#79706e", "#2f6b2f"};
constexpr std::array dashes = {"", "6 3", "2 2"};  // a colour comes again with another of these
constexpr const char* bound_name = "lower bound";

// Four figures without an exponent, however long a step is.
std::string shown_ms(double time) {
  return time >= 1000  ? fmt::format("{:.0f}", time)
         : time >= 100 ? fmt::format("{:.1f}", time)
                       : fmt::format("{:.4g}", time);
}

struct Point {
  double fraction = 0, ms = 0;
};
struct Curve {
  std::string policy, colour, dash;
  double width = 1.5;
  std::vector<Point> points;  // by fraction
};

// One line a policy in the order of the rows, then the bound; ours is red and wide.
std::vector<Curve> lines_of(const std::vector<const Row*>& rows) {
  std::vector<Curve> lines;
  Curve bound{.policy = bound_name, .colour = "currentColor", .dash = "4 3", .width = 1.5};
  std::size_t others = 0;
  for (const Row* row : rows) {
    auto line = std::find_if(lines.begin(), lines.end(), [&](const Curve& each) { return each.policy == row->policy; });
    if (line == lines.end()) {
      const bool ours = row->policy == "vedette";
      lines.push_back({.policy = row->policy,
                       .colour = ours ? "#e45756" : colours[others % colours.size()],
                       .dash = ours ? "" : dashes[others / colours.size() % dashes.size()],
                       .width = ours ? 3.0 : 1.5});
      others += ours ? 0 : 1;
      line = lines.end() - 1;
    }
    if (row->replayed) line->points.push_back({row->fraction, ms(row->replayed->measured.time)});
    if (row->lower_bound.value > 0 && row->policy == rows.front()->policy)
      bound.points.push_back({row->fraction, ms(row->lower_bound)});
  }
  lines.push_back(std::move(bound));
  for (Curve& line : lines)
    std::sort(line.points.begin(), line.points.end(),
              [](const Point& a, const Point& b) { return a.fraction < b.fraction; });
  std::erase_if(lines, [](const Curve& line) { return line.points.empty(); });
  return lines;
}

// The first line stands for the others, beside the bound.
std::vector<Curve> one_for_all(std::vector<Curve> lines) {
  std::erase_if(lines, [&](const Curve& line) { return &line != &lines.front() && line.policy != bound_name; });
  lines.front().policy = "all policies";
  return lines;
}

// Where things lie: fast memory to the right, the step's time upwards in logarithms from a little below the ideal.
class Chart {
 public:
  Chart(const std::vector<const Row*>& rows, std::vector<Curve> lines)
      : rows_(rows), lines_(std::move(lines)), ideal_(std::max(1e-6, ms(rows.front()->ideal))) {
    least_ = rows.front()->fraction;
    for (const Row* row : rows) least_ = std::min(least_, row->fraction), most_ = std::max(most_, row->fraction);
    for (const Curve& line : lines_) {
      for (const Point& point : line.points) slowest_ = std::max(slowest_, point.ms / ideal_);
    }
    slowest_ = std::clamp(slowest_, 1.2, 100.0);
  }

  std::string draw() {
    const double bottom = std::max(top + high + 48, top + 14.0 * static_cast<double>(lines_.size()) + 8);
    svg_ = fmt::format(
        "<svg viewBox=\"0 0 900 {0}\" style=\"min-width:44rem\" role=\"img\" aria-label=\"step time by fast memory "
        "and policy\">",
        bottom);
    grid();
    for (const Curve& line : lines_) curve(line);
    legend();
    return svg_ + "</svg>";
  }

 private:
  static constexpr double left = 122, top = 14, wide = 590, high = 330;

  double x(double fraction) const {
    return most_ > least_ ? left + 14 + (wide - 28) * (fraction - least_) / (most_ - least_) : left + wide / 2;
  }
  double y(double time) const {
    return top + high * (1 - std::log(std::clamp(time / ideal_, 1.0, slowest_)) / std::log(slowest_));
  }

  void grid() {
    double last = 1e9;
    for (const double times : {1.0, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0}) {
      if (times > slowest_ || last - y(times * ideal_) < 15) continue;
      last = y(times * ideal_);
      svg_ += fmt::format(
          "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" class=\"grid\"/><text x=\"{3}\" y=\"{4:.1f}\" "
          "text-anchor=\"end\">{5} ms</text>"
          "<text x=\"4\" y=\"{4:.1f}\" class=\"soft\">{6:g} x</text>",
          left, left + wide, last, left - 6, last + 4, shown_ms(times * ideal_), times);
    }
    std::vector<double> fractions;
    for (const Row* row : rows_) fractions.push_back(row->fraction);
    std::sort(fractions.begin(), fractions.end());
    double from = -1e9;
    for (const double fraction : fractions) {
      if (x(fraction) - from < 34) continue;
      from = x(fraction);
      svg_ += fmt::format(
          "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" class=\"grid\"/><text x=\"{0:.1f}\" y=\"{3}\" "
          "text-anchor=\"middle\">{4:.0f} %</text>",
          from, top, top + high, top + high + 16, 100 * fraction);
    }
    svg_ += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">fast memory, of the step's peak</text>",
                        left + wide / 2, top + high + 36);
  }

  void curve(const Curve& line) {
    svg_ += fmt::format("<g class=\"line\" stroke=\"{0}\" fill=\"{0}\"><title>{1}</title>", line.colour,
                        html_escaped(line.policy));
    std::string path;
    for (const Point& point : line.points) path += fmt::format("{:.1f},{:.1f} ", x(point.fraction), y(point.ms));
    svg_ += fmt::format("<polyline fill=\"none\" stroke-width=\"{}\" stroke-dasharray=\"{}\" points=\"{}\"/>",
                        line.width, line.dash, path);
    for (const Point& point : line.points)
      svg_ += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" stroke=\"none\"><title>{}: {:.3f} ms, {:.1f} % of ideal, at "
          "{:.0f} % of the peak</title></circle>",
          x(point.fraction), y(point.ms), html_escaped(line.policy), point.ms, 100 * ideal_ / point.ms,
          100 * point.fraction);
    svg_ += "</g>";
  }

  // Slowest first, as the lines lie at the left edge.
  void legend() {
    std::stable_sort(lines_.begin(), lines_.end(), [](const Curve& a, const Curve& b) {
      return a.points.front().fraction != b.points.front().fraction
                 ? a.points.front().fraction > b.points.front().fraction
                 : a.points.front().ms > b.points.front().ms;
    });
    double at = top + 8;
    for (const Curve& line : lines_) {
      svg_ += fmt::format(
          "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2}\" y2=\"{2}\" stroke=\"{3}\" stroke-width=\"{4}\" "
          "stroke-dasharray=\"{5}\"/><text x=\"{6}\" y=\"{7}\">{8}</text>",
          left + wide + 16, left + wide + 44, at, line.colour, line.width, line.dash, left + wide + 50, at + 4,
          html_escaped(line.policy));
      at += 14;
    }
  }

  const std::vector<const Row*>& rows_;
  std::vector<Curve> lines_;
  double ideal_, least_ = 0, most_ = 0, slowest_ = 1;
  std::string svg_;
};

std::string table_row(const Row& row, const std::string& policy) {
  std::string cells = fmt::format("<td>{}</td><td>{:.1f} %</td><td>{}</td>", readable(row.fast), 100 * row.fraction,
                                  html_escaped(policy));
  if (!row.replayed)
    return "<tr>" + cells + fmt::format("<td colspan=\"9\" class=\"why\">{}</td></tr>\n", html_escaped(row.error));
  const Replayed& got = *row.replayed;
  const double of_ideal = row.lower_bound.value == 0 ? 100
                                                     : 100.0 * static_cast<double>(row.ideal.value) /
                                                           static_cast<double>(row.lower_bound.value);
  const std::string bound = row.paged() ? "none" : fmt::format("{:.2f}", of_ideal);
  return "<tr>" + cells +
         fmt::format(
             "<td>{:.1f}</td><td>{:.2f}</td><td>{}</td><td>{:.1f}</td><td>{:.1f}</td><td>{}</td><td>{}</td><td>{}</"
             "td><td>{:.1f}</td></tr>\n",
             ms(got.measured.time), row.percent_of_ideal(), bound, ms(got.measured.stall), ms(got.recompute),
             readable(got.bytes_in), readable(got.bytes_out), readable(got.peak), ms(row.plan_time));
}

// The rows of one trace. A size at which all policies fail for one reason, the largest op, is one row.
std::string table_of(const std::vector<const Row*>& rows, const std::vector<PolicyEntry>& entries) {
  std::string table =
      "<table><tr><th>fast memory<th>of peak<th>policy<th>step ms<th>% of ideal<th>bound %<th>stall ms<th>recompute "
      "ms<th>in<th>out<th>peak<th>planned in ms</tr>\n";
  for (std::size_t first = 0; first < rows.size(); first += entries.size()) {
    const auto fails_alike = [&](const Row* row) { return !row->replayed && row->error == rows[first]->error; };
    const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(first);
    if (entries.size() > 1 && std::all_of(begin, begin + static_cast<std::ptrdiff_t>(entries.size()), fails_alike)) {
      table += table_row(*rows[first], "all " + std::to_string(entries.size()));
      continue;
    }
    for (std::size_t e = 0; e < entries.size(); ++e)
      table += table_row(*rows[first + e], marked(entries[e], *rows[first + e]));
  }
  return table + "</table>\n";
}

constexpr const char* style =
    R"(td:nth-child(3),th:nth-child(3),td.why{text-align:left}
td.why{color:var(--soft);white-space:normal;min-width:22em}
figure{margin:1em 0}figcaption{color:var(--soft);max-width:60em}
svg .soft{fill:var(--soft)}g.line:hover polyline{stroke-width:5})";

std::string provenance_of(const Provenance& from) {
  std::string machines;
  for (const auto& [machine, name] : from.machines)
    machines += fmt::format("<dt>machine<dd>{}: {}", html_escaped(name), html_escaped(tiers_and_links(machine)));
  return fmt::format(
      "<h2>Made with</h2>\n<dl><dt>vedette<dd>{}{}<dt>seed<dd>{}<dt>noise<dd>{} % of each op's "
      "time"
      "<dt>command<dd><code>{}</code></dl>\n",
      VEDETTE_VERSION, machines, from.seed, from.noise_percent, html_escaped(from.command));
}

}  // namespace

std::string compare_page(const std::vector<Row>& rows, const std::vector<PolicyEntry>& entries,
                         const std::vector<Timeline>& timelines, const Provenance& provenance) {
  std::string page = page_head("vedette compare", style) + "<h1>Policies compared</h1>\n";
  std::vector<std::string> traces;
  for (const Row& row : rows) {
    if (std::find(traces.begin(), traces.end(), row.trace) == traces.end()) traces.push_back(row.trace);
  }
  for (const std::string& trace : traces) {
    std::vector<const Row*> of_trace;
    bool alike = entries.size() > 1;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      if (rows[r].trace != trace) continue;
      of_trace.push_back(&rows[r]);
      if (r % entries.size() == 0) alike = alike && all_alike(std::span(rows).subspan(r, entries.size()));
    }
    page +=
        "<h2>" + html_escaped(trace) + "</h2>\n<figure><div class=\"scroll\">" +
        Chart(of_trace, alike ? one_for_all(lines_of(of_trace)) : lines_of(of_trace)).draw() + "</div><figcaption>" +
        (alike ? "All policies that run are within 1 % of each other at every size: one line stands for all. " : "") +
        "Time of a step, in logarithms; 1 x is the step with all its memory fast. The dashed "
        "lower bound is proven: no plan is below it. "
        "Sizes at which a policy cannot run have no point.</figcaption></figure>\n";
    for (const Timeline& timeline : timelines) {
      if (timeline.trace == trace)
        page += "<figure><div class=\"scroll\">" + timeline.svg + "</div><figcaption>" +
                html_escaped(timeline.caption) + "</figcaption></figure>\n";
    }
    page += "<div class=\"scroll\">" + table_of(of_trace, entries) + "</div>\n";
  }
  std::string partial;
  for (const PolicyEntry& entry : entries) {
    if (!entry.partial.empty())
      partial += fmt::format("<li>{}: {}</li>\n", entry.name, html_escaped(std::string(entry.partial)));
  }
  if (!partial.empty()) page += fmt::format("<p>* {}:</p><ul>\n{}</ul>\n", what_partial_means, partial);
  if (std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.paged(); }))
    page += fmt::format("<p>~ {}.</p>\n", what_paged_means);
  return page + provenance_of(provenance) + "</html>\n";
}

}  // namespace vedette::cli
