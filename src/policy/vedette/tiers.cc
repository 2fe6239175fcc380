// Deals stays between two slower tiers.
#include "policy/vedette/tiers.h"

#include <algorithm>
#include <numeric>

namespace vedette::planning {
namespace {

// The first tier behind the slow one that links join with the fastest both ways; 0: none.
std::uint32_t tier_behind(const Machine& machine, TierIndex slow) {
  for (std::uint32_t k = slow.value + 1; k < machine.tiers.size(); ++k) {
    if (machine.link({k}, {0}) != nullptr && machine.link({0}, {k}) != nullptr) return k;
  }
  return 0;
}

std::vector<std::int64_t> starts_of(const Trace& trace) {
  std::vector<std::int64_t> starts(trace.ops.size() + 1);
  for (std::size_t op = 0; op < trace.ops.size(); ++op) starts[op + 1] = starts[op] + trace.ops[op].time.value;
  return starts;
}

class Deal {
 public:
  Deal(const Trace& trace, const Machine& machine, const Setting& setting, std::uint32_t further,
       std::vector<Stay>& gaps)
      : trace_(trace),
        gaps_(gaps),
        further_(further),
        ops_(static_cast<std::uint32_t>(trace.ops.size())),
        capacity_(static_cast<std::int64_t>(machine.tiers[setting.slow.value].capacity.value / 100 * 98)),
        starts_(starts_of(trace)),
        change_(ops_ + 1) {
    find_candidates(*machine.link({further}, {0}), *machine.link({0}, {further}));
  }

  bool overflows() const { return overflows_; }

  // False where the nearer tier overflows whatever goes far.
  bool run(const TierShares& shares) {
    shares_ = &shares;
    if (shares.longest_first) return send_longest();
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return gaps_[a].last_use < gaps_[b].last_use; });
    double low = 0, high = 1;
    while (!fits(high) && high < 1'000) high *= 2;  // weights below 1 may need a larger multiple
    if (!fits(high)) return false;
    for (int i = 0; i < 20; ++i) {
      const double middle = (low + high) / 2;
      (fits(middle) ? high : low) = middle;
    }
    return fits(high);
  }

 private:
  std::int64_t bytes(const Stay& gap) const {
    return static_cast<std::int64_t>(trace_.tensors[gap.tensor].bytes.value);
  }
  std::int64_t time_of(const Stay& gap) const {
    return (starts_[gap.next_use % ops_] + (gap.next_use / ops_) * starts_[ops_]) - starts_[gap.last_use];
  }
  // A stay takes room in its tier from its evict to the end of its fetch.
  std::uint32_t end_of(const Stay& gap) const { return std::min(gap.next_use + 1, gap.last_use + ops_ + 1); }

  // held_[op]: bytes of stays in the nearer tier.
  void hold() {
    std::fill(change_.begin(), change_.end(), 0);
    for (const Stay& gap : gaps_) {
      if (gap.tier == further_) continue;
      const std::uint32_t begin = gap.last_use + 1, end = end_of(gap);
      change_[std::min(begin, ops_)] += bytes(gap);
      change_[std::min(end, ops_)] -= bytes(gap);
      if (end > ops_) change_[begin > ops_ ? begin - ops_ : 0] += bytes(gap), change_[end - ops_] -= bytes(gap);
    }
    std::int64_t sum = 0;
    most_ = 0;
    held_.resize(ops_);
    for (std::uint32_t op = 0; op < ops_; ++op) most_ = std::max(most_, held_[op] = sum += change_[op]);
  }

  // Stays that overlap an op at which the nearer tier is too full, and for which the further one is not too slow.
  void find_candidates(const Link& in, const Link& out) {
    hold();
    overflows_ = most_ > capacity_;
    if (!overflows_) return;
    std::vector<std::uint32_t> full(2 * ops_ + 2);
    for (std::uint32_t op = 0; op <= 2 * ops_; ++op) full[op + 1] = full[op] + (held_[op % ops_] > capacity_ ? 1 : 0);
    for (std::uint32_t g = 0; g < gaps_.size(); ++g) {
      const Stay& gap = gaps_[g];
      const Bytes size = trace_.tensors[gap.tensor].bytes;
      const std::int64_t trips =
          2 * (transfer_time(size, in.bytes_per_s).value + transfer_time(size, out.bytes_per_s).value);
      if (gap.returns && time_of(gap) < trips) continue;
      if (full[end_of(gap)] == full[gap.last_use + 1]) continue;
      order_.push_back(g);
    }
  }

  // Of the stays that overlap an op at which the nearer tier is still too full, the longest first.
  bool send_longest() {
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return time_of(gaps_[a]) > time_of(gaps_[b]); });
    for (const std::uint32_t g : order_) {
      Stay& gap = gaps_[g];
      bool over = false;
      for (std::uint32_t op = gap.last_use + 1; op < end_of(gap) && !over; ++op) over = held_[op % ops_] > capacity_;
      if (!over) continue;
      for (std::uint32_t op = gap.last_use + 1; op < end_of(gap); ++op) held_[op % ops_] -= bytes(gap);
      gap.tier = further_;
    }
    return *std::max_element(held_.begin(), held_.end()) <= capacity_;
  }

  // Sends that share of the candidates far; whether the rest fits.
  bool fits(double multiple) {
    double due = 0;  // bytes that should have gone far by now
    for (const std::uint32_t g : order_) {
      Stay& gap = gaps_[g];
      const auto size = static_cast<double>(bytes(gap));
      due += std::min(1.0, multiple * weight_at(gap.last_use)) * size;
      gap.tier = due >= size / 2 ? further_ : 0;
      if (gap.tier == further_) due -= size;
    }
    hold();
    return most_ <= capacity_;
  }

  double weight_at(std::uint32_t op) const {
    const std::int64_t stretch = starts_[ops_] / static_cast<std::int64_t>(TierShares::stretches) + 1;
    return shares_->weights[static_cast<std::size_t>(starts_[op] / stretch)];
  }

  const Trace& trace_;
  std::vector<Stay>& gaps_;
  const std::uint32_t further_, ops_;
  const std::int64_t capacity_;
  const TierShares* shares_ = nullptr;
  std::vector<std::int64_t> starts_;         // [op]: when it begins without stalls
  std::vector<std::int64_t> change_, held_;  // [op]
  std::int64_t most_ = 0;
  bool overflows_ = false;
  std::vector<std::uint32_t> order_;  // candidates
};

}  // namespace

Spread spread_over_tiers(const Trace& trace, const Machine& machine, const Setting& setting, const TierShares& shares,
                         std::vector<Stay>& gaps) {
  const std::uint32_t further = tier_behind(machine, setting.slow);
  if (trace.ops.empty() || further == 0) return {};
  Deal deal(trace, machine, setting, further, gaps);
  if (!deal.overflows()) return {};
  return {.overflows = true, .fits = deal.run(shares)};
}

void fetch_far_early(const Trace& trace, const Uses& uses, const Machine& machine, const Setting& setting,
                     std::vector<Stay>& gaps) {
  const std::uint32_t further = tier_behind(machine, setting.slow);
  std::vector<Stay*> far;
  for (Stay& gap : gaps) {
    if (gap.tier == further && further != 0 && gap.returns) far.push_back(&gap);
  }
  if (far.empty()) return;
  const auto ops = static_cast<std::uint32_t>(trace.ops.size());
  const std::vector<std::int64_t> starts = starts_of(trace);
  std::vector<std::int64_t> near = occupied_without_moves(trace, uses, setting.granule);
  const auto room_of = [&](const Stay& gap) {
    return static_cast<std::int64_t>(rounded(trace.tensors[gap.tensor].bytes.value, setting.granule));
  };
  for (const Stay& gap : gaps) {
    for (std::uint32_t op = gap.gone; op < gap.fetch; ++op) near[op % ops] -= room_of(gap);
  }
  std::stable_sort(far.begin(), far.end(),
                   [&](const Stay* a, const Stay* b) { return a->next_use % ops > b->next_use % ops; });
  std::int64_t free_until = 2 * starts[ops];
  for (Stay* gap : far) {
    const std::uint32_t shift = gap->next_use / ops * ops;
    const std::int64_t due = starts[gap->next_use % ops];
    const Link& in = *machine.link({further}, {0});
    const std::int64_t begin =
        std::min(due, free_until) - transfer_time(trace.tensors[gap->tensor].bytes, in.bytes_per_s).value * 11 / 10;
    free_until = begin;
    while (gap->fetch > gap->gone) {
      const std::uint32_t before = gap->fetch - 1;
      const std::int64_t at = starts[before % ops] - (before < shift ? starts[ops] : 0);
      if (at + trace.ops[before % ops].time.value < begin || near[before % ops] + room_of(*gap) > setting.budget) break;
      near[before % ops] += room_of(*gap);
      gap->fetch = before;
    }
  }
}

}  // namespace vedette::planning
