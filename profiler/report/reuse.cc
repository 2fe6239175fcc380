// Reuse distances, what they say about smaller and larger budgets, and what a simulator says.
//
// The distance of an access is the bytes of other tensors that were accessed since its tensor's last one: LRU with a
// capacity of less than the distance and the tensor itself has lost it by then (Mattson et al., 1970: one pass for all
// capacities). The step repeats, so a first pass warms the stack and the second is counted. A Fenwick tree over the
// times of accesses holds the bytes of the tensors last accessed at each. O(accesses * log(accesses)).
#include <algorithm>
#include <bit>
#include <cmath>

#include "model/liveness.h"
#include "profiler/report/report.h"

namespace vedette::report {

namespace {

class Fenwick {
 public:
  explicit Fenwick(std::size_t size) : sums_(size + 1) {}
  void add(std::size_t at, std::uint64_t value) {  // wraps for negative ones, as the sums do
    for (++at; at < sums_.size(); at += at & (~at + 1)) sums_[at] += value;
  }
  std::uint64_t sum(std::size_t end) const {  // of [0, end)
    std::uint64_t total = 0;
    for (; end > 0; end -= end & (~end + 1)) total += sums_[end];
    return total;
  }

 private:
  std::vector<std::uint64_t> sums_;
};

struct Again {  // an access to bytes that were accessed before
  Bytes distance, bytes;
};

std::vector<Again> distances(const Trace& trace) {
  std::size_t accesses = 0;
  for (const Op& op : trace.ops) accesses += operands(op).size();
  const auto alive = lives(trace);
  Fenwick stack(2 * accesses);
  constexpr std::size_t none = ~std::size_t{0};
  std::vector<std::size_t> last(trace.tensors.size(), none);
  std::vector<Again> found;
  std::size_t now = 0;
  const auto leave = [&](std::uint32_t t) {
    if (last[t] != none) stack.add(last[t], ~trace.tensors[t].bytes.value + 1);
    last[t] = none;
  };
  for (const bool counts : {false, true}) {
    for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
      const auto touched = operands(trace.ops[i]);
      for (const TensorIndex t : touched) {
        const Bytes bytes = trace.tensors[t.value].bytes;
        if (last[t.value] != none) {
          const std::uint64_t since = stack.sum(now) - stack.sum(last[t.value] + 1);
          if (counts) found.push_back({.distance = {since}, .bytes = bytes});
          leave(t.value);
        }
        stack.add(now, bytes.value);
        last[t.value] = now++;
      }
      const auto dies = [&](TensorIndex t) {
        return !trace.tensors[t.value].persistent && alive[t.value].end.value <= i + 1;
      };
      for (const TensorIndex t : touched)
        if (dies(t)) leave(t.value);
      for (const TensorIndex t : trace.ops[i].frees) leave(t.value);
    }
  }
  return found;
}

std::vector<ReuseBin> histogram_of(const std::vector<Again>& all) {
  std::vector<ReuseBin> bins;
  for (const Again& again : all) {
    const std::size_t bin = static_cast<std::size_t>(std::bit_width(again.distance.value));
    while (bins.size() <= bin)
      bins.push_back({.least = {bins.empty() ? 0 : std::uint64_t{1} << (bins.size() - 1)}, .accesses = 0, .bytes = {}});
    ++bins[bin].accesses;
    bins[bin].bytes += again.bytes;
  }
  return bins;
}

Bytes lru_fetches(const std::vector<Again>& all, Bytes capacity) {
  Bytes fetched;
  for (const Again& again : all)
    if (again.distance + again.bytes > capacity) fetched += again.bytes;
  return fetched;
}

// A run moves chunks, in which many small tensors lie together. Here each tensor would round up to chunks of its own,
// and all of them not even fit into the peak; so they are moved to the byte.
void simulate(CurvePoint& point, const Trace& step, const Run& run, const ReportOptions& options) {
  Machine machine = run.machine;
  machine.granule = {1};
  machine.tiers[0].capacity = point.fast_memory;
  if (options.bound) point.bound = options.bound(step, machine);
  auto ran = options.simulate(step, machine, run.policy);
  if (!ran) {
    point.note = ran.error().message;
    return;
  }
  point.step = ran->step;
  point.stall = ran->stall;
  point.bytes_in = ran->bytes_in;
  point.bytes_out = ran->bytes_out;
}

}  // namespace

Reuse reuse_of(const Run& run, const ReportOptions& options) {
  Reuse reuse;
  const Profile* profile = run.shown_profile();
  if (profile == nullptr) return reuse;
  const auto all = distances(profile->trace);
  reuse.histogram = histogram_of(all);
  const std::uint64_t peak = peak_bytes(profile->trace).value;
  if (peak == 0) return reuse;
  std::vector<double> shares = {0.05, 0.1, 0.15, 0.2, 0.25, 0.33, 0.5, 0.75, 1.0};
  const double own = static_cast<double>(run.budget.value) / static_cast<double>(peak);
  if (own > 0 && own < 1 &&
      std::none_of(shares.begin(), shares.end(), [&](double s) { return std::abs(s - own) < 0.005; }))
    shares.push_back(own);
  std::sort(shares.begin(), shares.end());
  const Link* link = run.machine.link({1}, {0});
  const Trace step = steady_trace(run);
  for (const double share : shares) {
    CurvePoint point{.share = share,
                     .fast_memory = {static_cast<std::uint64_t>(std::ceil(static_cast<double>(peak) * share))}};
    point.lru_in = lru_fetches(all, point.fast_memory);
    if (link != nullptr) point.transfer = transfer_time(point.lru_in, link->bytes_per_s);
    if (options.simulate && run.machine.tiers.size() > 1) simulate(point, step, run, options);
    reuse.simulated = reuse.simulated || point.step.has_value();
    reuse.curve.push_back(std::move(point));
  }
  return reuse;
}

}  // namespace vedette::report
