// Links across a cut: see cut.h.
#include "sim/cut.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace vedette::sim {
namespace {

constexpr double endless = 1e18;  // bytes a second

double speed_of(const Link& link) { return link.bytes_per_s == 0 ? endless : static_cast<double>(link.bytes_per_s); }
double speed_of_bus(const Machine& machine, const Link& link) {  // links that do not cross may be idle
  double all = 0;
  for (const Link& other : machine.links)
    if (share_a_bus(link, other)) all = std::max(all, speed_of(other));
  return all;
}

// Bytes a second that cross, at most, by all links or by those alone that take nothing of the host's memory. Links of
// one bus together are as fast as the fastest of them.
double speed_across(const Machine& machine, std::uint32_t near, bool inward, bool beside_host) {
  double rate = 0;
  std::vector<std::pair<std::uint32_t, double>> buses;
  for (const Link& link : machine.links) {
    const std::uint32_t from = link.source.value, to = link.target.value;
    if (inward ? from <= near || to > near : from > near || to <= near) continue;
    if (beside_host && machine.host_memory.limits(link)) continue;
    const double own = speed_of(link);
    if (!link.shared) {
      rate += own;
      continue;
    }
    const auto bus =
        std::find_if(buses.begin(), buses.end(), [&](const auto& each) { return each.first == *link.shared; });
    const double all = speed_of_bus(machine, link);
    if (bus == buses.end()) {
      buses.emplace_back(*link.shared, std::min(all, own));
      rate += std::min(all, own);
    } else if (bus->second < all) {
      const double more = std::min(all, bus->second + own) - bus->second;
      bus->second += more;
      rate += more;
    }
  }
  return rate;
}

// Where one link each way crosses the cut, and both are on one bus: its speed.
double speed_of_one_bus(const Machine& machine, std::uint32_t near) {
  const Link *in = nullptr, *out = nullptr;
  for (const Link& link : machine.links) {
    const bool inward = link.source.value > near && link.target.value <= near,
               outward = link.source.value <= near && link.target.value > near;
    if ((inward && in != nullptr) || (outward && out != nullptr)) return endless;
    if (inward) in = &link;
    if (outward) out = &link;
  }
  return in != nullptr && out != nullptr && share_a_bus(*in, *out) ? speed_of_bus(machine, *in) : endless;
}

}  // namespace

Cut cut_behind(const Machine& machine, std::uint32_t near) {
  double in = speed_across(machine, near, true, false), out = speed_across(machine, near, false, false),
         together = speed_of_one_bus(machine, near);
  if (machine.host_memory.bytes_per_s != 0) {
    const auto left = static_cast<double>(machine.host_memory.left_for_links());
    const double in_beside = speed_across(machine, near, true, true),
                 out_beside = speed_across(machine, near, false, true);
    in = std::min(in, in_beside + left);
    out = std::min(out, out_beside + left);
    together = std::min(together, in_beside + out_beside + left);
  }
  double twice = 1;  // operands in place cross beside what links carry, the faster the less an op loses by them
  std::uint32_t least_percent = 100;
  for (const InPlacePrice& price : machine.in_place_prices) least_percent = std::min(least_percent, price.percent);
  for (std::uint32_t k = near + 1; k < machine.tiers.size(); ++k)
    if (machine.tiers[k].addressable) twice = 1 + 100.0 / std::max(least_percent, 1u);
  Cut cut{.in = in == 0 ? -1 : 1e9 / (twice * in), .out = out == 0 ? -1 : 1e9 / (twice * out)};
  if (together < in + out) cut.part_in = in / together, cut.part_out = out / together;
  for (std::uint32_t k = 0; k <= near; ++k) cut.capacity += static_cast<double>(machine.tiers[k].capacity.value);
  return cut;
}

}  // namespace vedette::sim
