// One step as bars: ops, waits, and the transfers of each link, on a common clock.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cli/html.h"
#include "cli/lab.h"

namespace vedette::cli {
namespace {

constexpr double lanes_left = 130, wide = 1040, lane_high = 18, lane_step = 24;

const char* colour_of(Bar::Kind kind) {
  switch (kind) {
    case Bar::Kind::op:
      return "#4c78a8";
    case Bar::Kind::wait:
      return "#e45756";
    case Bar::Kind::recompute:
      return "#f58518";
    case Bar::Kind::move:
      return "#72b7b2";
  }
  return "#000";
}

// Bars of one lane, those of one kind that are closer than a third of a pixel drawn as one: a step has thousands.
class Lane {
 public:
  Lane(double y, double ns_a_pixel) : y_(y), ns_a_pixel_(ns_a_pixel) {}

  void add(const Bar& bar) {
    const double begin = lanes_left + static_cast<double>(bar.time.begin.value) / ns_a_pixel_,
                 end = lanes_left + static_cast<double>(bar.time.end.value) / ns_a_pixel_;
    if (open_ && (bar.kind != kind_ || begin - end_ > 0.34)) close();
    if (!open_) open_ = true, begin_ = begin, end_ = end, kind_ = bar.kind;
    end_ = std::max(end_, end);
  }
  std::string finish() {
    if (open_) close();
    return std::move(svg_);
  }

 private:
  void close() {
    const double width = std::max(0.2, std::min(end_, lanes_left + wide + 8) - begin_);
    svg_ += fmt::format("<rect x=\"{:.2f}\" y=\"{:g}\" width=\"{:.2f}\" height=\"{:g}\" fill=\"{}\"/>", begin_, y_,
                        width, lane_high, colour_of(kind_));
    open_ = false;
  }

  double y_, ns_a_pixel_, begin_ = 0, end_ = 0;
  Bar::Kind kind_ = Bar::Kind::op;
  bool open_ = false;
  std::string svg_;
};

// The lanes of one step from `y` on; returns their drawing.
std::string lanes(const Replayed& replayed, const std::string& title, const Machine& machine, double y,
                  double ns_a_pixel) {
  std::string svg = fmt::format("<text x=\"4\" y=\"{:g}\">{}</text><text x=\"4\" y=\"{:g}\">operators</text>", y + 12,
                                html_escaped(title), y + 33);
  std::vector<Lane> all;
  for (std::size_t l = 0; l <= machine.links.size(); ++l)
    all.emplace_back(y + 20 + lane_step * static_cast<double>(l), ns_a_pixel);
  for (std::size_t l = 0; l < machine.links.size(); ++l)
    svg += fmt::format("<text x=\"4\" y=\"{:g}\">{} to {}</text>", y + 57 + lane_step * static_cast<double>(l),
                       html_escaped(machine.tiers[machine.links[l].source.value].name),
                       html_escaped(machine.tiers[machine.links[l].target.value].name));
  std::vector<Bar> bars = replayed.timeline;
  std::stable_sort(bars.begin(), bars.end(), [](const Bar& a, const Bar& b) { return a.time.begin < b.time.begin; });
  for (const Bar& bar : bars) {
    std::size_t lane = 0;
    for (std::size_t l = 0; bar.kind == Bar::Kind::move && l < machine.links.size(); ++l) {
      if (machine.links[l].source == bar.source && machine.links[l].target == bar.target) lane = l + 1;
    }
    all[lane].add(bar);
  }
  for (Lane& lane : all) svg += lane.finish();
  return svg;
}

}  // namespace

std::string timeline_svg(const std::vector<TimelineOf>& steps, const Machine& machine) {
  const double block = 32 + lane_step * static_cast<double>(machine.links.size() + 1),
               high = block * static_cast<double>(steps.size()) + 26;
  double total = 1;
  for (const TimelineOf& step : steps) total = std::max(total, static_cast<double>(step.replayed->measured.time.value));
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1200 {0:g}\" class=\"timeline\" "
      "style=\"min-width:56rem\"><style>.timeline text{{font:11px sans-serif;fill:#16202b}}.timeline "
      ".ground{{fill:#fff}}.timeline .grid{{stroke:#dde2e8}}@media(prefers-color-scheme:dark){{.timeline "
      "text{{fill:#e6ebf0}}.timeline .ground{{fill:#0e1318}}.timeline .grid{{stroke:#2a343f}}}}</style>"
      "<rect width=\"1200\" height=\"{0:g}\" class=\"ground\"/>",
      high);
  const double unit = std::pow(10, std::floor(std::log10(total / 1e6))), tick = total / 1e6 / unit < 2   ? unit / 5
                                                                                : total / 1e6 / unit < 5 ? unit / 2
                                                                                                         : unit;
  for (double at = 0; at <= total / 1e6 * 1.0001; at += tick)
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"18\" y2=\"{1:g}\" class=\"grid\"/><text x=\"{0:.1f}\" y=\"{2:g}\" "
        "text-anchor=\"middle\">{3:g} ms</text>",
        lanes_left + wide * at * 1e6 / total, high - 22, high - 8, at);
  double y = 2;
  for (const TimelineOf& step : steps) {
    svg += lanes(*step.replayed,
                 fmt::format("{}: {:.2f} ms; operators blue, stalls red, recompute orange", step.title,
                             static_cast<double>(step.replayed->measured.time.value) / 1e6),
                 machine, y, total / wide);
    y += block;
  }
  return svg + "</svg>\n";
}

}  // namespace vedette::cli
