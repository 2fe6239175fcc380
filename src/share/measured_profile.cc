#include "share/measured_profile.h"

#include <algorithm>
#include <cstdlib>

namespace vedette::share {

void MeasuredProfile::add(Bytes lease, Nanoseconds stall, Nanoseconds step) {
  constexpr std::uint64_t parts = 16;  // of a lease
  constexpr std::int64_t parts_of_step = 8;
  const auto near = [&](const StallAt& point) {
    const auto [less, more] = std::minmax(point.lease, lease);
    return (more - less).value <= more.value / parts;
  };
  const auto same = std::find_if(points_.begin(), points_.end(), near);
  if (same != points_.end()) {
    if (std::abs(same->stall.value - stall.value) > step.value / parts_of_step) same->stall = stall;
    return;
  }
  const auto above = [&](const StallAt& point) { return point.lease > lease; };
  points_.insert(std::find_if(points_.begin(), points_.end(), above), {lease, stall});
}

}  // namespace vedette::share
