#include "share/simulate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/assert.h"
#include "base/readable.h"

namespace vedette::share {
namespace {

constexpr double never = std::numeric_limits<double>::max();

struct Running {
  double idle = 0, work = 0;     // of the iteration at hand, or the start-up: nanoseconds left, as if alone
  std::uint64_t iterations = 0;  // left
  Nanoseconds arrival;
  std::uint32_t index = 0;  // in the list
  bool started_up = false;
};

class Simulator {
 public:
  Simulator(std::span<const ListedJob> list, const Simulation& simulation) : list_(list), simulation_(simulation) {
    order_.resize(list.size());
    std::iota(order_.begin(), order_.end(), 0U);
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return list[a].arrival < list[b].arrival; });
    outcome_.completion.resize(list.size());
    outcome_.queued.resize(list.size());
  }

  Outcome run() {
    if (list_.empty()) return outcome_;
    now_ = list_[order_.front()].arrival;
    const Nanoseconds first = now_;
    while (arrived_ < order_.size() || !jobs_.empty()) {
      if (arrive() || changed_ || turns_count()) ask();
      changed_ = false;
      pass(until_next());
      finish_iterations();
    }
    outcome_.makespan = now_ - first;
    return outcome_;
  }

 private:
  bool turns_count() const noexcept {
    const Policy& policy = simulation_.policy;
    return policy.room != Room::together && policy.order != Order::fifo;
  }

  bool arrive() {
    bool any = false;
    for (; arrived_ < order_.size() && list_[order_[arrived_]].arrival <= now_; ++arrived_, any = true) {
      const ListedJob& listed = list_[order_[arrived_]];
      running_.push_back({.iterations = listed.iterations, .arrival = listed.arrival, .index = order_[arrived_]});
      jobs_.push_back({.floor = listed.floor,
                       .want = listed.want,
                       .rest = listed.rest,
                       .persistent = listed.persistent,
                       .ephemeral = listed.ephemeral,
                       .profile = listed.profile,
                       .step = listed.iteration,
                       .weight = listed.weight,
                       .remaining = listed.alone()});
    }
    return any;
  }

  void ask() {
    const std::vector<Grant> grants = decide(simulation_.policy, jobs_, simulation_.capacity);
    Bytes leased;
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      follow(grants[j], jobs_[j], running_[j]);
      leased += grants[j].lease;
    }
    outcome_.most_leased = std::max(outcome_.most_leased, leased);
    if (simulation_.watch == nullptr) return;
    std::vector<ListedJob> listed;
    for (const Running& each : running_) listed.push_back(list_[each.index]);
    simulation_.watch(simulation_.watcher, {now_, listed, jobs_, grants});
  }

  void follow(const Grant& grant, Job& job, Running& running) {
    if (grant.turn && !job.has_turn) {
      ++outcome_.turns;
      job.turn = {};
    }
    if (grant.turn && !job.started) outcome_.queued[running.index] = now_ - running.arrival;
    const Bytes before = std::min(job.persistent, job.lease), now = std::min(job.persistent, grant.lease);
    if (job.started && now > before) {
      running.idle += static_cast<double>(transfer_time(now - before, simulation_.link_bytes_per_s).value);
      outcome_.came_back += now - before;
    }
    job.started = job.started || grant.turn || grant.lane.has_value();
    job.lease = grant.lease;
    job.lane = grant.lane;
    job.has_turn = grant.turn;
    if (job.has_turn && !job.in_step) begin(job, running);
  }

  void begin(Job& job, Running& running) const {
    const ListedJob& listed = list_[running.index];
    job.in_step = true;
    if (!running.started_up) {
      running.idle += static_cast<double>(listed.start_up.value);
      return;
    }
    const double work = static_cast<double>(listed.iteration.value);
    running.idle += static_cast<double>(stall_with(job, job.lease).value) + work * (1 - listed.busy);
    running.work += work * listed.busy;
  }

  // Work is done while nothing idle is left, slower by as much as the jobs at work would overload the device.
  double slow_down() const noexcept {
    double load = 0;
    for (std::size_t j = 0; j < jobs_.size(); ++j)
      if (jobs_[j].has_turn && running_[j].idle <= 0 && running_[j].work > 0) load += 1;
    return std::max(1.0, load);
  }

  Nanoseconds until_next() const noexcept {
    double soonest = never;
    const double slower = slow_down();
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      if (!jobs_[j].has_turn) continue;
      const Running& each = running_[j];
      soonest = std::min(soonest, each.idle > 0 ? each.idle : each.work * slower);
    }
    if (arrived_ < order_.size())
      soonest = std::min(soonest, static_cast<double>((list_[order_[arrived_]].arrival - now_).value));
    VEDETTE_ASSERT(soonest < never);  // some job can always run
    return {static_cast<std::int64_t>(std::ceil(std::max(soonest, 0.0)))};
  }

  void pass(Nanoseconds time) {
    const double slower = slow_down();
    const auto passed = static_cast<double>(time.value);
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      if (!jobs_[j].has_turn) {
        jobs_[j].waited += time;
        continue;
      }
      Running& each = running_[j];
      (each.idle > 0 ? each.idle : each.work) -= each.idle > 0 ? passed : passed / slower;
      jobs_[j].turn += time;
    }
    now_ += time;
  }

  void finish_iterations() {
    for (std::size_t j = 0; j < jobs_.size();) {
      Job& job = jobs_[j];
      Running& each = running_[j];
      const bool over = job.has_turn && job.in_step && each.idle <= 0.5 && each.work <= 0.5;
      if (!over) {
        ++j;
        continue;
      }
      finish(job, each);
      if (each.iterations > 0) {
        if (!turns_count()) begin(job, each);
        ++j;
        continue;
      }
      outcome_.completion[each.index] = now_ - each.arrival;
      jobs_.erase(jobs_.begin() + static_cast<std::ptrdiff_t>(j));
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(j));
      changed_ = true;
    }
  }

  void finish(Job& job, Running& each) const {
    const ListedJob& listed = list_[each.index];
    const Nanoseconds done = each.started_up ? listed.iteration : listed.start_up;
    each.idle = each.work = 0;
    job.in_step = false;
    job.used += done;
    *job.remaining -= done;
    if (each.started_up) --each.iterations;
    each.started_up = true;
  }

  std::span<const ListedJob> list_;
  const Simulation& simulation_;
  std::vector<std::uint32_t> order_;  // by arrival
  std::size_t arrived_ = 0;
  Nanoseconds now_;
  std::vector<Job> jobs_;         // that are there, in the order of arrival
  std::vector<Running> running_;  // the same
  bool changed_ = false;          // one has ended
  Outcome outcome_;
};

Error does_not_fit(const ListedJob& job, Bytes needs, Bytes capacity) {
  return {Cause::infeasible, job.name + " runs with " + readable_exactly(needs) + " at least, and there are " +
                                 readable_exactly(capacity) + "; leave it out, or give more --memory"};
}

}  // namespace

Nanoseconds Outcome::mean() const noexcept {
  double sum = 0;
  for (const Nanoseconds each : completion) sum += static_cast<double>(each.value);
  return {completion.empty() ? 0 : static_cast<std::int64_t>(sum / static_cast<double>(completion.size()))};
}

Nanoseconds Outcome::percentile(double part) const {
  std::vector<Nanoseconds> sorted = completion;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.empty()) return {};
  const auto rank = static_cast<std::size_t>(std::ceil(part * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1];
}

Result<Outcome> simulate(std::span<const ListedJob> list, const Simulation& simulation) {
  for (const ListedJob& job : list) {
    const Bytes needs = simulation.policy.room == Room::lanes ? job.persistent + job.ephemeral : job.floor;
    if (needs > simulation.capacity) return does_not_fit(job, needs, simulation.capacity);
  }
  return Simulator(list, simulation).run();
}

}  // namespace vedette::share
