// Two runs, layer by layer: which of them lost or won the time.
//
// Layers meet by phase and name. One that only one run has is 0 in the other.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "profiler/report/report.h"

namespace vedette::report {

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

}  // namespace vedette::report
