#include "share/decide.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "share/lanes.h"

namespace vedette::share {
namespace {

constexpr std::array all_policies{
    Policy{.name = "fifo"},
    Policy{.name = "srtf", .order = Order::srtf},
    Policy{.name = "fair", .order = Order::fair},
    Policy{.name = "pack", .room = Room::together},
    Policy{.name = "salus-fifo", .room = Room::lanes},
    Policy{.name = "salus-srtf", .order = Order::srtf, .room = Room::lanes, .ageing = 0},
    Policy{.name = "salus-fair", .order = Order::fair, .room = Room::lanes},
};

// --- the rest of the memory, where it saves the most -----------------------------------------------------------------

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

// Adds `left` bytes at most to the leases of jobs that run. The largest saving a byte and a second of the job's own
// time comes first, times its weight. Of a profile its lower convex hull counts: a gain that needs much memory is seen
// before its last byte. Bytes that save nothing come last, in the order of arrival.
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

// --- turns -----------------------------------------------------------------------------------------------------------

// The smallest is served first.
double key_of(const Policy& policy, const Job& job) noexcept {
  if (policy.order == Order::fifo) return 0;
  const auto used = static_cast<double>(job.used.value);
  const double waited = policy.ageing * static_cast<double>(job.waited.value);
  if (policy.order == Order::fair) return (used - waited) / job.weight;
  return (job.remaining ? static_cast<double>(job.remaining->value) : used) - waited;
}

bool keeps_turn(const Policy& policy, const Job& job) noexcept {
  return job.has_turn && (job.in_step || (policy.order == Order::fair && job.ready && job.turn < policy.quantum));
}

struct Started {  // of all started jobs
  Bytes rest;
  Bytes most_beside;  // of one that runs, beyond its rest
};

Bytes beside(const Job& job) noexcept { return job.floor - job.rest; }

Started started(std::span<const Job> jobs) {
  Started all;
  for (const Job& job : jobs) {
    if (!job.started) continue;
    all.rest += job.rest;
    all.most_beside = std::max(all.most_beside, beside(job));
  }
  return all;
}

// Each of the started jobs can run when its turn comes, this one among them: the condition of one lane of Salus, with
// what stays of a waiting job for P.
bool may_start(const Job& job, const Started& all, Bytes capacity) noexcept {
  return all.rest + job.rest + std::max(all.most_beside, beside(job)) <= capacity;
}

// Nothing starts past a job that comes before it in order and has no room yet, or that one would wait for ever.
std::optional<std::uint32_t> next_turn(const Policy& policy, std::span<const Job> jobs, Bytes capacity) {
  for (std::uint32_t j = 0; j < jobs.size(); ++j)
    if (keeps_turn(policy, jobs[j])) return j;
  const Started all = started(jobs);
  bool blocked = false;
  for (const std::uint32_t j : in_order(policy, jobs)) {
    const Job& job = jobs[j];
    if (!job.ready || job.floor > capacity) continue;
    if (job.started ? all.rest + beside(job) <= capacity : !blocked && may_start(job, all, capacity)) return j;
    blocked = blocked || !job.started;
  }
  return std::nullopt;
}

// In order of service each job keeps as much as it wants, while those behind have what they cannot give back: a turn
// that changes hands costs the less.
void keep_warm(const Policy& policy, std::span<const Job> jobs, Bytes left, std::vector<Grant>& grants) {
  const auto widen = [&](std::uint32_t j) {
    const Bytes more = std::min(left, jobs[j].want - std::min(jobs[j].want, grants[j].lease));
    grants[j].lease += more;
    left -= more;
  };
  for (std::uint32_t j = 0; j < jobs.size(); ++j)
    if (grants[j].turn) widen(j);
  for (const std::uint32_t j : in_order(policy, jobs))
    if (jobs[j].started && jobs[j].ready && !grants[j].turn) widen(j);
}

std::vector<Grant> by_turns(const Policy& policy, std::span<const Job> jobs, Bytes capacity) {
  std::vector<Grant> grants(jobs.size());
  const std::optional<std::uint32_t> runs = next_turn(policy, jobs, capacity);
  Bytes given;
  for (std::uint32_t j = 0; j < jobs.size(); ++j) {
    grants[j].turn = j == runs;
    if (j == runs || jobs[j].started) grants[j].lease = j == runs ? jobs[j].floor : jobs[j].rest;
    given += grants[j].lease;
  }
  if (given <= capacity) keep_warm(policy, jobs, capacity - given, grants);
  return grants;
}

// First those in a step, then those that have waited longest.
std::vector<std::uint32_t> by_wait(std::span<const Job> jobs) {
  std::vector<std::uint32_t> order(jobs.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    if (jobs[a].in_step != jobs[b].in_step) return jobs[a].in_step;
    return jobs[a].waited > jobs[b].waited;
  });
  return order;
}

// Nothing begins past a started job that has no room yet.
std::vector<Grant> together(const Policy& policy, std::span<const Job> jobs, Bytes capacity) {
  std::vector<Grant> grants(jobs.size());
  Bytes given;
  for (std::uint32_t j = 0; j < jobs.size(); ++j) {
    if (jobs[j].started) grants[j].lease = jobs[j].rest;
    given += grants[j].lease;
  }
  bool passed_over = false;  // floors may have risen since they started
  const Bytes rests = given;
  for (const std::uint32_t j : by_wait(jobs)) {
    const Job& job = jobs[j];
    if (!job.started || !job.ready || rests + beside(job) > capacity) continue;
    const bool fits = given + beside(job) <= capacity;
    if (fits && (job.in_step || !passed_over)) {
      grants[j] = {.lease = job.floor, .turn = true};
      given += beside(job);
    }
    passed_over = passed_over || !fits;
  }
  for (const std::uint32_t j : in_order(policy, jobs)) {
    const Job& job = jobs[j];
    if (job.started || !job.ready || job.floor > capacity || passed_over) continue;
    if (given + job.floor <= capacity) {
      grants[j] = {.lease = job.floor, .turn = true};
      given += job.floor;
    } else if (job.waited >= policy.patience) {
      break;
    }
  }
  if (given <= capacity) pour(jobs, capacity - given, grants);
  return grants;
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

std::span<const Policy> policies() noexcept { return all_policies; }

const Policy* policy_named(std::string_view name) noexcept {
  const auto* const found =
      std::find_if(all_policies.begin(), all_policies.end(), [&](const Policy& policy) { return policy.name == name; });
  return found == all_policies.end() ? nullptr : found;
}

std::vector<std::uint32_t> in_order(const Policy& policy, std::span<const Job> jobs) {
  std::vector<std::uint32_t> order(jobs.size());
  std::iota(order.begin(), order.end(), 0U);
  if (policy.order == Order::fifo) return order;
  std::vector<double> keys(jobs.size());
  for (std::size_t j = 0; j < jobs.size(); ++j) keys[j] = key_of(policy, jobs[j]);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return keys[a] < keys[b]; });
  return order;
}

std::vector<Grant> decide(const Policy& policy, std::span<const Job> jobs, Bytes capacity) {
  if (policy.room == Room::lanes) return by_lanes(policy, jobs, capacity);
  return policy.room == Room::together ? together(policy, jobs, capacity) : by_turns(policy, jobs, capacity);
}

}  // namespace vedette::share
