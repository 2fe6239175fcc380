#include "share/water.h"

#include <algorithm>

namespace vedette::share {
namespace {

// The profile's points from `floor` to `want`, both of them among these.
std::vector<StallAt> points_of(const Job& job) {
  std::vector<StallAt> points;
  for (const StallAt& point : job.profile)
    if (point.lease > job.floor && point.lease < job.want) points.push_back(point);
  const Nanoseconds at_floor = stall_with(job, job.floor);
  points.insert(points.begin(), {job.floor, at_floor});
  if (job.want > job.floor) points.push_back({job.want, {0}});
  return points;
}

double slope(const StallAt& a, const StallAt& b) noexcept {  // stall saved a byte
  return static_cast<double>(a.stall.value - b.stall.value) / static_cast<double>(b.lease.value - a.lease.value);
}

struct Segment {
  std::uint32_t job;
  Bytes bytes;
  double saves;
};

void add_segments(std::uint32_t j, const Job& job, std::vector<Segment>& segments) {
  std::vector<StallAt> hull;
  for (const StallAt& point : points_of(job)) {
    while (hull.size() >= 2 && slope(hull[hull.size() - 2], hull.back()) <= slope(hull.back(), point)) hull.pop_back();
    hull.push_back(point);
  }
  const double own = static_cast<double>(std::max<std::int64_t>(job.step.value, 1));
  for (std::size_t p = 1; p < hull.size(); ++p)
    segments.push_back({j, hull[p].lease - hull[p - 1].lease, slope(hull[p - 1], hull[p]) / own * job.weight});
}

}  // namespace

Nanoseconds stall_with(const Job& job, Bytes lease) noexcept {
  if (lease >= job.want || job.profile.empty()) return {0};
  StallAt before = job.profile.front(), after{job.want, {0}};
  if (lease <= before.lease) return before.stall;
  for (const StallAt& point : job.profile) {
    if (point.lease <= lease) before = point;
    if (point.lease > lease && point.lease < after.lease) after = point;
  }
  const double part = static_cast<double>((lease - before.lease).value) /
                      static_cast<double>(std::max<std::uint64_t>((after.lease - before.lease).value, 1));
  const auto change = static_cast<double>(after.stall.value - before.stall.value);
  return {before.stall.value + static_cast<std::int64_t>(change * part)};
}

void pour(std::span<const Job> jobs, Bytes left, std::vector<Grant>& grants) {
  std::vector<Segment> segments;
  for (std::uint32_t j = 0; j < jobs.size(); ++j)
    if (grants[j].turn) add_segments(j, jobs[j], segments);
  std::stable_sort(segments.begin(), segments.end(),
                   [](const Segment& a, const Segment& b) { return a.saves > b.saves; });
  for (const Segment& segment : segments) {
    const Bytes more = std::min(left, segment.bytes);
    grants[segment.job].lease += more;
    left -= more;
  }
}

}  // namespace vedette::share
