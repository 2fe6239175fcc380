// Reuse distances, and the cost of other budgets: the fetches of least recently used, and a simulated step.
//
// The distance of an access is the bytes of other tensors that were accessed since its tensor's last access and are
// still alive. It says how local the step is. Fetches at a budget do not follow from it (lru.cc says why). The step
// repeats, so a first pass warms the stack and the second is counted. A Fenwick tree over the times of accesses holds
// the bytes of the tensors last accessed at each. O(accesses * log(accesses)).
#include <algorithm>
#include <bit>
#include <cmath>

#include "model/liveness.h"
#include "profiler/report/report.h"
#include "vedette/machine.h"

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
      bins.push_back({.least = {bins.empty() ? 0 : std::uint64_t{1} << (bins.size() - 1)}, .accesses = 0});
    ++bins[bin].accesses;
    bins[bin].bytes += again.bytes;
  }
  return bins;
}

// A run moves chunks, in which many small tensors lie together. Here each tensor would round up to chunks of its own,
// and all of them not even fit into the peak; so they are moved to the byte.
void simulate(CurvePoint& point, const Trace& step, Machine machine, const ReportOptions& options,
              const std::string& policy) {
  machine.granule = {1};
  machine.tiers[0].capacity = point.fast_memory;
  if (options.bound) point.bound = options.bound(step, machine);
  auto ran = options.simulate(step, machine, policy);
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
  reuse.policy = options.policy.empty() ? run.policy : options.policy;
  const Profile* profile = run.shown_profile();
  if (profile == nullptr) return reuse;
  const auto all = distances(profile->trace);
  reuse.histogram = histogram_of(all);
  const std::uint64_t peak = peak_bytes(profile->trace).value;
  if (peak == 0) return reuse;
  std::vector<double> shares = {0.05, 0.1, 0.15, 0.2, 0.25, 0.33, 0.5, 0.75, 1.0};
  const Machine& machine = options.machine ? *options.machine : run.machine;
  const Bytes budget = run.budget.value > 0 || machine.tiers.empty() ? run.budget : machine.tiers[0].capacity;
  const double own = static_cast<double>(budget.value) / static_cast<double>(peak);
  if (own > 0 && own < 1 &&
      std::none_of(shares.begin(), shares.end(), [&](double s) { return std::abs(s - own) < 0.005; }))
    shares.push_back(own);
  std::sort(shares.begin(), shares.end());
  const Machine as_it_runs = on_its_bus(machine);
  const Link* link = as_it_runs.link({1}, {0});
  const Trace step = simulated_trace(run);
  reuse.in_parts = step.tensors.size() > profile->trace.tensors.size();
  for (const double share : shares) {
    CurvePoint point{.share = share,
                     .fast_memory = {static_cast<std::uint64_t>(std::ceil(static_cast<double>(peak) * share))}};
    point.lru_in = lru_fetches(step, point.fast_memory);
    if (link != nullptr && point.lru_in) point.transfer = transfer_time(*point.lru_in, link->bytes_per_s);
    reuse.curve.push_back(std::move(point));
  }
  if (!options.simulate || machine.tiers.size() < 2) return reuse;
  // The recording's own budget first and then the largest ones, whose plans are found soonest: time may be limited.
  std::vector<CurvePoint*> order;
  for (CurvePoint& point : reuse.curve) order.push_back(&point);
  std::stable_sort(order.begin(), order.end(), [&](const CurvePoint* a, const CurvePoint* b) {
    const bool mine = std::abs(a->share - own) < 0.005, other = std::abs(b->share - own) < 0.005;
    return mine != other ? mine : a->share > b->share;
  });
  for (CurvePoint* point : order) {
    simulate(*point, step, machine, options, reuse.policy);
    reuse.simulated = reuse.simulated || point->step.has_value();
  }
  return reuse;
}

}  // namespace vedette::report
