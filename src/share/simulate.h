// A list of jobs under a policy of share/decide.h, by arithmetic: a discrete-event simulation with a clock of its own.
//
// Jobs that run at once share the device: where they would keep it busy for more than all of the time, all slow down
// alike. A job starts up once, which keeps nothing busy. What is ephemeral is dead between two iterations; of what
// persists, what left while the job waited comes back at the link's speed first.
//
// Pure: same list, same result. Any thread.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "share/decide.h"
#include "vedette/result.h"

namespace vedette::share {

struct ListedJob {
  std::string name;
  Nanoseconds arrival;
  std::uint64_t iterations = 0;
  Nanoseconds iteration;  // alone, with all the memory that it wants
  Nanoseconds start_up;   // before the first one
  double busy = 1;        // the part of an iteration in which the device computes
  double weight = 1;
  Bytes persistent, ephemeral, floor, want, rest;
  std::vector<StallAt> profile;
  Nanoseconds alone() const noexcept {
    return {start_up.value + iteration.value * static_cast<std::int64_t>(iterations)};
  }
};

struct Moment {  // after each decision, for checks
  Nanoseconds now;
  std::span<const ListedJob> list;  // those that are there, in the order of arrival, as the two below
  std::span<const Job> jobs;
  std::span<const Grant> grants;
};

struct Simulation {
  Bytes capacity;
  Policy policy;
  std::uint64_t link_bytes_per_s = 0;             // 0: leases come back at once
  void (*watch)(void*, const Moment&) = nullptr;  // with `watcher`
  void* watcher = nullptr;
};

struct Outcome {
  Nanoseconds makespan;                 // from the first arrival to the last end
  std::vector<Nanoseconds> completion;  // of each job of the list, since it arrived
  std::vector<Nanoseconds> queued;      // of each job, until its first turn
  Bytes most_leased, came_back;
  std::uint64_t turns = 0;  // that another job began
  Nanoseconds mean() const noexcept;
  Nanoseconds percentile(double part) const;  // of completion: 0.95 of 100 is the 95th
};

// Errors (infeasible): a job that does not fit by itself, by name.
Result<Outcome> simulate(std::span<const ListedJob> list, const Simulation& simulation);

}  // namespace vedette::share
