// A meter a link, a meter a bus, and one for the host's memory.
#include "sim/meters.h"

#include <algorithm>
#include <limits>

namespace vedette::sim {

Meters::Meters(const Machine& machine, Bytes block)
    : tiers_(machine.tiers.size()),
      link_(tiers_ * tiers_, none),
      bus_(tiers_ * tiers_, none),
      host_(tiers_ * tiers_, none) {
  std::uint64_t fastest = 0;
  for (const Link& link : machine.links) {
    link_[at(link.source.value, link.target.value)] = static_cast<std::uint32_t>(meters_.size());
    meters_.push_back({.bytes_per_s = link.bytes_per_s});
    fastest = std::max(fastest, link.bytes_per_s);
  }
  for (const Link& link : machine.links) {
    if (!link.shared) continue;
    std::uint64_t speed = 0;
    std::uint32_t bus = static_cast<std::uint32_t>(meters_.size());
    for (const Link& other : machine.links) {
      if (other.shared != link.shared) continue;
      speed = std::max(speed, other.bytes_per_s);
      const std::uint32_t known = bus_[at(other.source.value, other.target.value)];
      if (known != none) bus = known;
    }
    if (bus == meters_.size()) meters_.push_back({.bytes_per_s = speed});
    bus_[at(link.source.value, link.target.value)] = bus;
  }
  for (const Link& link : machine.links)
    if (machine.host_memory.limits(link))
      host_[at(link.source.value, link.target.value)] = static_cast<std::uint32_t>(meters_.size());
  if (machine.host_memory.bytes_per_s != 0) meters_.push_back({.bytes_per_s = machine.host_memory.left_for_links()});
  if (fastest != 0) tick_ns_ = std::max<std::int64_t>(1, transfer_time(block, fastest).value);
  for (Meter& each : meters_) {
    const auto more = static_cast<std::int64_t>(static_cast<long double>(each.bytes_per_s) *
                                                static_cast<long double>(tick_ns_) / 1e9L);
    each.more = std::max<std::int64_t>(1, more);
  }
}

Meters::Refilled Meters::refill() {
  Refilled now;
  for (Meter& each : meters_) {
    const bool before = each.spent();
    each.left = std::min(each.left, std::int64_t{0}) + each.more;
    now.free = now.free && !each.spent();
    now.opened = now.opened || (before && !each.spent());
  }
  return now;
}

std::int64_t Meters::ticks_alike() const {
  std::int64_t ticks = std::numeric_limits<std::int64_t>::max();
  for (const Meter& each : meters_)
    if (each.spent()) ticks = std::min(ticks, -each.left / each.more);
  return ticks;
}

void Meters::pass(std::int64_t ticks) {
  if (ticks <= 0) return;
  for (Meter& each : meters_)
    each.left = each.left > 0 ? each.more : each.left + (each.spent() ? ticks * each.more : 0);
}

bool Meters::open(std::uint8_t source, std::uint8_t target) const {
  return joined(source, target) && !spent(link_[at(source, target)]) && !spent(bus_[at(source, target)]) &&
         !spent(host_[at(source, target)]);
}

void Meters::carry(std::uint64_t bytes, std::uint8_t source, std::uint8_t target) {
  for (const std::uint32_t meter : {link_[at(source, target)], bus_[at(source, target)], host_[at(source, target)]}) {
    if (meter != none && meters_[meter].bytes_per_s != 0) meters_[meter].left -= static_cast<std::int64_t>(bytes);
  }
}

}  // namespace vedette::sim
