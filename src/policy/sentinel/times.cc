// How long a step takes by Sentinel's plan: at least, from its runs alone; and by simulation.
#include <algorithm>

#include "policy/sentinel/plan.h"
#include "policy/sentinel/runs.h"
#include "sim/simulator.h"

namespace vedette::sentinel {
namespace {

// Without latencies, which requests that overlap do not pay.
std::int64_t link_time(const Problem& problem, TierIndex source, TierIndex target, Bytes bytes) {
  const Link* link = problem.machine.link(source, target);
  return link == nullptr ? 0 : transfer_time(bytes, link->bytes_per_s).value;
}

}  // namespace

// One step from idle links. A fetch begins when the interval before its own does, at the earliest, and its first use
// stalls for it; those that would have to begin in the step before are left out. An eviction begins after its last use;
// an unchanged tensor leaves at once. Of all evictions that began before an op, no more bytes are on their way in that
// op than the limit leaves beside the runs. Each link serves the first need first, so room, order and the step before
// only add time.
std::optional<Nanoseconds> least_time(const Problem& problem, const Cut& cut) {
  const Demand demand(problem, cut);
  const Facts& facts = problem.facts;
  const std::size_t n = problem.trace.ops.size();
  const std::vector<Run> runs = demand.runs();
  const std::vector<std::int64_t> excess = demand.excess(runs);
  if (*std::max_element(excess.begin(), excess.end()) > 0) return std::nullopt;
  // a late fetch may be left where it is
  if (problem.machine.tiers[problem.slow.value].addressable) return Nanoseconds{facts.began[n]};
  // [op]: ns of fetches for it, of evictions after it, their bytes
  std::vector<std::int64_t> in(n), out(n), leaving(n);
  for (const Run& run : runs) {
    const Bytes bytes = problem.trace.tensors[run.tensor.value].bytes;
    if (run.fetched && demand.interval_of(run.first) > 0) in[run.first] += link_time(problem, problem.slow, {0}, bytes);
    if (!run.leaves || !run.writes) continue;
    out[run.last % n] += link_time(problem, {0}, problem.slow, bytes);
    leaving[run.last % n] += static_cast<std::int64_t>(facts.sizes[run.tensor.value]);
  }
  struct Leaving {
    std::int64_t bytes, began;  // of those before it, too; when the link begins with it
  };
  std::vector<Leaving> sent;
  std::int64_t now = 0, reads_end = 0, writes_end = 0, sent_bytes = 0;
  for (std::size_t i = 0, interval = 0; i < n; ++i) {
    if (i == demand.begin_of(interval)) {
      reads_end = std::max(reads_end, now);
      ++interval;
      for (std::size_t op = demand.begin_of(interval);
           interval < demand.intervals() && op < demand.begin_of(interval + 1); ++op)
        in[op] = in[op] == 0 ? 0 : reads_end += in[op];
    }
    now = std::max(now, in[i]);
    const std::int64_t gone = sent_bytes + excess[i];  // bytes that have left, at least
    if (gone > 0) {
      const auto last = std::lower_bound(sent.begin(), sent.end(), gone,
                                         [](const Leaving& each, std::int64_t bytes) { return each.bytes < bytes; });
      now = std::max(now, last->began);
    }
    now += facts.began[i + 1] - facts.began[i];
    if (leaving[i] == 0) continue;
    sent.push_back({sent_bytes += leaving[i], std::max(writes_end, now)});
    writes_end = sent.back().began + out[i];
  }
  return Nanoseconds{now};
}

Nanoseconds predicted_time(const Problem& problem, const sim::Step& step, const Plan& plan) {
  const auto replayed = sim::simulate(problem.trace, step, problem.machine, plan, {.steps = 2});
  return replayed ? replayed->measured.time : longest;
}

}  // namespace vedette::sentinel
