// How the experiments of `vedette reproduce` write tables and charts: CSV, HTML, SVG.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "cli/html.h"
#include "cli/reproduce.h"

namespace vedette::cli {
namespace {

constexpr std::array colours = {"#e45756", "#4c78a8", "#f58518", "#54a24b", "#b279a2",
                                "#9d755d", "#439894", "#c9a227", "#d67195", "#79706e"};
constexpr double left = 40, top = 26, high = 220, bar = 11, gap = 16;

double width_of(const BarGroup& group) { return bar * static_cast<double>(group.values.size()) + gap; }

std::string legend(const std::vector<std::string>& series) {
  std::string svg;
  double x = left;
  for (std::size_t s = 0; s < series.size(); ++s) {
    svg += fmt::format(
        "<rect x=\"{:.0f}\" y=\"6\" width=\"10\" height=\"10\" fill=\"{}\"/><text x=\"{:.0f}\" y=\"15\">{}</text>", x,
        colours[s % colours.size()], x + 14, html_escaped(series[s]));
    x += 30 + 6.2 * static_cast<double>(series[s].size());
  }
  return svg;
}

std::string bars_of(const std::vector<std::string>& series, const BarGroup& group, double x) {
  const auto y = [](double percent) { return top + high * (1 - std::clamp(percent, 0.0, 100.0) / 100); };
  std::string svg;
  for (std::size_t s = 0; s < group.values.size(); ++s, x += bar) {
    const double value = group.values[s];
    if (value >= 0)
      svg += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"><title>{}, {}: {:.1f} "
          "%</title></rect>",
          x, y(value), bar - 2, top + high - y(value), colours[s % colours.size()], html_escaped(group.name),
          html_escaped(series[s]), value);
    if (s < group.published.size() && group.published[s] >= 0)
      svg += fmt::format(
          "<line x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"currentColor\" "
          "stroke-width=\"2\"><title>published: {3:.1f} %</title></line>",
          x - 1, x + bar - 1, y(group.published[s]), group.published[s]);
  }
  return svg;
}

}  // namespace

std::string csv_line(const std::vector<std::string>& cells) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) line += ',';
    if (cells[i].find_first_of(",\"\n\r") == std::string::npos) {
      line += cells[i];
      continue;
    }
    line += '"';
    for (const char c : cells[i]) line.append(c == '"' ? "\"\"" : std::string(1, c));
    line += '"';
  }
  return line + "\n";
}

std::string csv_table(const std::vector<std::vector<std::string>>& rows) {
  std::string text;
  for (const auto& row : rows) text += csv_line(row);
  return text;
}

std::string markdown_table(const std::vector<std::vector<std::string>>& rows) {
  std::string text;
  for (const auto& row : rows) {
    text += "|";
    for (const std::string& cell : row) text += " " + cell + " |";
    text += "\n";
    if (&row != &rows.front()) continue;
    text += "|";
    for (std::size_t c = 0; c < row.size(); ++c) text += "---|";
    text += "\n";
  }
  return text;
}

std::string html_table(const std::vector<std::vector<std::string>>& rows) {
  std::string table = "<table>";
  for (std::size_t r = 0; r < rows.size(); ++r) {
    table += "<tr>";
    for (const std::string& cell : rows[r]) {
      const bool words = r > 0 && cell.size() > 48 && cell.find(' ') != std::string::npos;
      table += (r == 0 ? "<th>" : words ? "<td class=\"words\">" : "<td>") + html_escaped(cell);
    }
    table += "</tr>\n";
  }
  return table + "</table>\n";
}

std::string bars_svg(const std::vector<std::string>& series, const std::vector<BarGroup>& groups,
                     const std::string& label) {
  double wide = left + 20;
  for (const BarGroup& group : groups) wide += width_of(group);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\" "
      "font-family=\"sans-serif\" font-size=\"11\">",
      std::max(wide, 560.0), top + high + 96, html_escaped(label));
  svg += legend(series);
  for (int percent = 0; percent <= 100; percent += 20) {
    const double y = top + high * (1 - percent / 100.0);
    svg += fmt::format(
        "<line class=\"grid\" stroke=\"#8888\" x1=\"{0}\" x2=\"{1:.0f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5} %</text>",
        left, wide - 10, y, left - 4, y + 4, percent);
  }
  double x = left + gap / 2;
  for (const BarGroup& group : groups) {
    svg += bars_of(series, group, x);
    svg += fmt::format("<text transform=\"translate({:.1f} {:.1f}) rotate(40)\">{}</text>", x, top + high + 14,
                       html_escaped(group.name));
    x += width_of(group);
  }
  return svg + "</svg>\n";
}

}  // namespace vedette::cli
