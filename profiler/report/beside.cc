// Two runs on one axis, and their difference by tensors.
//
// Steps of the same ops share the axis of ops: what the same op left behind stands at one place, however long it took.
// Other steps share an axis of time, each in parts of its own length. Tensors meet by name, which tells the layer and
// the op that made them; the rest by role, size and allocating op, in their order.
#include "profiler/report/beside.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/printable.h"
#include "profiler/report/words.h"

namespace vedette::report {

namespace {

constexpr std::size_t most_points = 600;
constexpr const char* no_tensor = "(no tensor: scratch, and what is not known)";

const StepTimeline* shown_of(const Report& report) {
  for (const StepTimeline& step : report.timeline.steps)
    if (report.steps.shown && step.step == *report.steps.shown) return &step;
  return nullptr;
}

bool same_ops(const StepTimeline* a, const StepTimeline* b) {
  return a != nullptr && b != nullptr && !a->ops.empty() &&
         std::equal(a->ops.begin(), a->ops.end(), b->ops.begin(), b->ops.end(),
                    [](const TimelineOp& x, const TimelineOp& y) { return x.name == y.name; });
}

// Where a time of the step stands on the axis.
class Axis {
 public:
  Axis(const Report& report, bool by_op) : step_(shown_of(report)), by_op_(by_op) {
    end_ = step_ != nullptr                ? step_->time
           : report.memory.samples.empty() ? Nanoseconds{}
                                           : report.memory.samples.back().time;
  }
  double place(Nanoseconds time) const {
    if (!by_op_)
      return end_.value <= 0 ? 0
                             : std::clamp(static_cast<double>(time.value) / static_cast<double>(end_.value), 0.0, 1.0);
    const auto& ops = step_->ops;
    const auto running =
        std::partition_point(ops.begin(), ops.end(), [&](const TimelineOp& op) { return op.time.end <= time; });
    return static_cast<double>(running - ops.begin()) / static_cast<double>(ops.size());
  }

 private:
  const StepTimeline* step_;
  const bool by_op_;
  Nanoseconds end_;
};

// Of many samples the highest of each few.
std::vector<AxisPoint> points_of(const Report& report, bool by_op) {
  const Axis axis(report, by_op);
  std::vector<std::pair<Nanoseconds, Nanoseconds>> stalls;  // end, time
  if (const StepTimeline* const step = shown_of(report))
    for (const TimelineStall& stall : step->stalls)
      stalls.emplace_back(stall.time.end, stall.time.end - stall.time.begin);
  std::sort(stalls.begin(), stalls.end());
  std::vector<AxisPoint> points;
  Nanoseconds stalled;
  std::size_t next = 0;
  const std::size_t few = report.memory.samples.size() / most_points + 1;
  for (std::size_t i = 0; i < report.memory.samples.size(); ++i) {
    const MemorySample& sample = report.memory.samples[i];
    for (; next < stalls.size() && stalls[next].first <= sample.time; ++next) stalled += stalls[next].second;
    if (i % few == 0) points.push_back({});
    AxisPoint& point = points.back();
    point.at = axis.place(sample.time);
    point.live = std::max(point.live, sample.live);
    point.resident = std::max(point.resident, sample.resident);
    point.stalled = stalled;
  }
  return points;
}

// --- tensors ---

struct TensorCost {  // of one tensor
  Bytes peak, moved;
  Nanoseconds stall;
};

struct Side {
  std::map<std::int64_t, TensorCost> of;  // by tensor; -1: none
  Bytes peak;
};

// The first op at which most bytes of tensors live.
std::uint32_t peak_op(const std::vector<TensorRow>& tensors) {
  std::map<std::uint32_t, std::int64_t> change;
  for (const TensorRow& t : tensors) {
    if (!t.life) continue;
    change[t.life->begin] += static_cast<std::int64_t>(t.bytes.value);
    change[t.life->end] -= static_cast<std::int64_t>(t.bytes.value);
  }
  std::int64_t live = 0, most = 0;
  std::uint32_t found = 0;
  for (const auto& [op, bytes] : change)
    if ((live += bytes) > most) most = live, found = op;
  return found;
}

Side side_of(const Report& report) {
  Side side{.peak = report.headline.peak};
  const std::uint32_t op = peak_op(report.tensors);
  Bytes known;
  for (const TensorRow& t : report.tensors) {
    if (!t.life || op < t.life->begin || op >= t.life->end) continue;
    side.of[t.tensor].peak = t.bytes;
    known += t.bytes;
  }
  side.of[-1].peak = {side.peak.value - std::min(side.peak.value, known.value)};
  if (const StepTimeline* const step = shown_of(report)) {
    for (const TimelineMove& move : step->moves)
      if (move.verb != "drop") side.of[move.tensor].moved += move.bytes;
    for (const TimelineStall& stall : step->stalls) {
      const bool known_move = stall.move >= 0 && static_cast<std::size_t>(stall.move) < step->moves.size();
      side.of[known_move ? step->moves[static_cast<std::size_t>(stall.move)].tensor : -1].stall +=
          stall.time.end - stall.time.begin;
    }
  }
  return side;
}

// By name, and the rest by what they are, in their order.
std::vector<TensorDifference> pairs_of(const std::vector<TensorRow>& here, const std::vector<TensorRow>& there) {
  using What = std::tuple<std::string, std::string, std::uint64_t>;
  const auto what = [](const TensorRow& t) { return What{t.role, t.site, t.bytes.value}; };
  std::vector<TensorDifference> pairs;
  std::map<std::string_view, const TensorRow*> named;
  for (const TensorRow& t : there) named.emplace(t.name, &t);
  std::map<What, std::vector<std::size_t>> alone;  // of `pairs`, the last first
  for (const TensorRow& t : here) {
    pairs.push_back({.name = t.name, .here = t.tensor});
    const auto met = named.find(t.name);
    if (met == named.end()) continue;
    pairs.back().there = met->second->tensor;
    named.erase(met);
  }
  for (std::size_t i = pairs.size(); i-- > 0;)
    if (pairs[i].there < 0) alone[what(here[i])].push_back(i);
  for (const TensorRow& t : there) {
    if (!named.contains(t.name) || named.at(t.name) != &t) continue;
    const auto met = alone.find(what(t));
    if (met != alone.end() && !met->second.empty()) {
      TensorDifference& pair = pairs[met->second.back()];
      met->second.pop_back();
      pair.there = t.tensor;
      pair.renamed = true;
    } else {
      pairs.push_back({.name = t.name, .there = t.tensor});
    }
  }
  pairs.push_back({.name = no_tensor});
  return pairs;
}

std::int64_t between(Bytes here, Bytes there) {
  return static_cast<std::int64_t>(there.value) - static_cast<std::int64_t>(here.value);
}
std::int64_t peak_change(const TensorDifference& d) { return between(d.peak_here, d.peak_there); }
std::int64_t moved_change(const TensorDifference& d) { return between(d.moved_here, d.moved_there); }
std::int64_t stall_change(const TensorDifference& d) { return (d.stall_there - d.stall_here).value; }

std::vector<TensorDifference> differences(const Report& run, const Report& other, const Side& here, const Side& there) {
  std::vector<TensorDifference> all = pairs_of(run.tensors, other.tensors);
  const auto of = [](const Side& side, std::int64_t tensor, bool is_rest) {
    const auto found = side.of.find(tensor);
    return found == side.of.end() || (tensor < 0 && !is_rest) ? TensorCost{} : found->second;
  };
  for (TensorDifference& each : all) {
    const bool rest = &each == &all.back();
    const TensorCost a = of(here, each.here, rest), b = of(there, each.there, rest);
    each.peak_here = a.peak, each.peak_there = b.peak;
    each.moved_here = a.moved, each.moved_there = b.moved;
    each.stall_here = a.stall, each.stall_there = b.stall;
  }
  std::erase_if(all, [](const TensorDifference& d) {
    return peak_change(d) == 0 && moved_change(d) == 0 && stall_change(d) == 0;
  });
  std::stable_sort(all.begin(), all.end(), [](const TensorDifference& a, const TensorDifference& b) {
    return std::tuple(std::abs(peak_change(b)), std::abs(moved_change(b)), std::abs(stall_change(b))) <
           std::tuple(std::abs(peak_change(a)), std::abs(moved_change(a)), std::abs(stall_change(a)));
  });
  return all;
}

}  // namespace

Beside beside_of(const Report& run, const Report& other) {
  Beside beside;
  beside.by_op = same_ops(shown_of(run), shown_of(other));
  beside.axis = beside.by_op ? "Both steps ran the same operators, so that one operator is at one place of the axis."
                             : "The steps ran different operators, so that the axis is a share of each step's time.";
  beside.here = points_of(run, beside.by_op);
  beside.there = points_of(other, beside.by_op);
  const Side here = side_of(run), there = side_of(other);
  beside.peak_here = here.peak;
  beside.peak_there = there.peak;
  beside.tensors = differences(run, other, here, there);
  return beside;
}

// Layers meet by phase and name. One that only one run has is 0 in the other.
std::vector<LayerDifference> compared(const Report& run, const Report& other) {
  std::vector<LayerDifference> found;
  std::map<std::pair<std::string, std::string>, std::size_t> place;
  const auto of = [&](const LayerRow& layer) -> LayerDifference& {
    const auto [at, first] = place.try_emplace({layer.phase, layer.name}, found.size());
    if (first) found.push_back({.name = layer.layer < 0 ? "" : layer.name, .phase = layer.phase});
    return found[at->second];
  };
  const auto add = [](LayerCost& cost, const LayerRow& layer) {
    cost.time += layer.time;
    cost.stall += layer.stall;
    cost.moved += layer.moved_in + layer.moved_out;
  };
  for (const LayerRow& layer : run.layers) add(of(layer).here, layer);
  for (const LayerRow& layer : other.layers) add(of(layer).there, layer);
  for (LayerDifference& each : found)
    each.change = (each.there.time + each.there.stall) - (each.here.time + each.here.stall);
  std::stable_sort(found.begin(), found.end(), [](const LayerDifference& a, const LayerDifference& b) {
    return std::abs(a.change.value) > std::abs(b.change.value);
  });
  return found;
}

void shorten(Beside& beside, std::size_t most) {
  if (beside.tensors.size() > most) beside.tensors.resize(most);
}

nlohmann::ordered_json json_of(const Beside& beside) {
  using Json = nlohmann::ordered_json;
  const auto points = [](const std::vector<AxisPoint>& all) {
    Json list = Json::array();
    for (const AxisPoint& p : all)
      list.push_back({std::round(p.at * 1e6) / 1e6, p.live.value, p.resident.value, p.stalled.value});
    return list;
  };
  Json tensors = Json::array();
  for (const TensorDifference& d : beside.tensors)
    tensors.push_back({{"name", d.name},
                       {"run", d.here},
                       {"other", d.there},
                       {"renamed", d.renamed},
                       {"peak_bytes", {d.peak_here.value, d.peak_there.value}},
                       {"moved_bytes", {d.moved_here.value, d.moved_there.value}},
                       {"stall_ns", {d.stall_here.value, d.stall_there.value}}});
  return {{"axis", beside.by_op ? "op" : "time"},
          {"why", beside.axis},
          {"run", points(beside.here)},
          {"other", points(beside.there)},
          {"peak_bytes", {beside.peak_here.value, beside.peak_there.value}},
          {"tensors", std::move(tensors)}};
}

std::string text_of(const Beside& beside) {
  constexpr std::size_t most_told = 8, name_width = 48;
  std::string text;
  const auto sign = [](std::int64_t value) { return std::string(value > 0 ? "+" : "-"); };
  const auto bytes = [&](std::int64_t value) {
    return sign(value) + readable(Bytes{static_cast<std::uint64_t>(std::abs(value))});
  };
  const auto told = [&](const std::string& title, auto change, auto words, auto here, auto there) {
    std::vector<const TensorDifference*> order;
    std::int64_t all = 0;
    for (const TensorDifference& d : beside.tensors)
      if (change(d) != 0) order.push_back(&d), all += change(d);
    if (order.empty()) return;
    std::stable_sort(order.begin(), order.end(), [&](const TensorDifference* a, const TensorDifference* b) {
      return std::abs(change(*a)) > std::abs(change(*b));
    });
    text += fmt::format("{}: {} in all\n", title, all == 0 ? "the same" : words(all));
    for (std::size_t i = 0; i < order.size() && i < most_told; ++i)
      text += fmt::format("  {:<{}}{:>14}{:>14}{:>14}\n", printable_name(order[i]->name, name_width), name_width,
                          here(*order[i]), there(*order[i]), words(change(*order[i])));
    if (order.size() > most_told) text += fmt::format("  and {} more (--json has all)\n", order.size() - most_told);
  };
  told(
      "bytes at the peak, this run, the other", peak_change, bytes,
      [](const TensorDifference& d) { return readable(d.peak_here); },
      [](const TensorDifference& d) { return readable(d.peak_there); });
  told(
      "bytes moved in the shown step", moved_change, bytes,
      [](const TensorDifference& d) { return readable(d.moved_here); },
      [](const TensorDifference& d) { return readable(d.moved_there); });
  told(
      "stalls of the shown step", stall_change,
      [&](std::int64_t value) { return sign(value) + readable(Nanoseconds{std::abs(value)}); },
      [](const TensorDifference& d) { return readable(d.stall_here); },
      [](const TensorDifference& d) { return readable(d.stall_there); });
  return text;
}

}  // namespace vedette::report
