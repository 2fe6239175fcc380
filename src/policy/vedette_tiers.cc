// Long stays go far.
#include "policy/vedette_tiers.h"

#include <algorithm>
#include <numeric>

#include "policy/vedette_layout.h"

namespace vedette::planning {
namespace {

class Spread {
 public:
  Spread(const Trace& trace, const Uses& uses, const Machine& machine, const Setting& setting, std::vector<Stay>& gaps)
      : trace_(trace),
        machine_(machine),
        setting_(setting),
        gaps_(gaps),
        ops_(static_cast<std::uint32_t>(trace.ops.size())),
        held_(ops_),
        starts_(ops_ + 1) {
    for (std::uint32_t op = 0; op < ops_; ++op) starts_[op + 1] = starts_[op] + trace.ops[op].time.value;
    for (const Stay& gap : gaps) hold(gap, 1);
    near_ = occupied_without_moves(trace, uses, setting.granule);
    for (const Stay& gap : gaps) occupy(gap.gone, gap.fetch, gap, -1);
  }

  void run() {
    const std::uint32_t further = next_tier();
    const auto capacity = static_cast<std::int64_t>(machine_.tiers[setting_.slow.value].capacity.value / 100 * 98);
    if (further == 0 || *std::max_element(held_.begin(), held_.end()) <= capacity) return;
    const Link& in = *machine_.link({further}, {0});
    const Link& out = *machine_.link({0}, {further});
    std::vector<std::uint32_t> order(gaps_.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return time_of(gaps_[a]) > time_of(gaps_[b]); });
    for (std::uint32_t g : order) {
      Stay& gap = gaps_[g];
      const Bytes bytes = trace_.tensors[gap.tensor].bytes;
      const std::int64_t trips =
          2 * (transfer_time(bytes, in.bytes_per_s).value + transfer_time(bytes, out.bytes_per_s).value);
      if ((gap.returns && time_of(gap) < trips) || !over(gap, capacity)) continue;
      hold(gap, -1);
      gap.tier = further;
    }
    bring_back_early(in);
  }

 private:
  // The first tier behind the slow one that links join with the fastest both ways; 0: none.
  std::uint32_t next_tier() const {
    for (std::uint32_t k = setting_.slow.value + 1; k < machine_.tiers.size(); ++k) {
      if (machine_.link({k}, {0}) != nullptr && machine_.link({0}, {k}) != nullptr) return k;
    }
    return 0;
  }
  std::int64_t bytes(const Stay& gap) const {
    return static_cast<std::int64_t>(trace_.tensors[gap.tensor].bytes.value);
  }
  std::int64_t time_of(const Stay& gap) const {
    return (starts_[gap.next_use % ops_] + (gap.next_use / ops_) * starts_[ops_]) - starts_[gap.last_use];
  }
  // It takes room there from its evict to the end of its fetch.
  void hold(const Stay& gap, std::int64_t sign) {
    const std::uint32_t end = std::min(gap.next_use + 1, gap.last_use + ops_ + 1);
    for (std::uint32_t op = gap.last_use + 1; op < end; ++op) held_[op % ops_] += sign * bytes(gap);
  }
  bool over(const Stay& gap, std::int64_t capacity) const {
    for (std::uint32_t op = gap.last_use + 1; op < std::min(gap.next_use + 1, gap.last_use + ops_ + 1); ++op) {
      if (held_[op % ops_] > capacity) return true;
    }
    return false;
  }
  void occupy(std::uint32_t begin, std::uint32_t end, const Stay& gap, std::int64_t sign) {
    const auto room = static_cast<std::int64_t>(rounded(trace_.tensors[gap.tensor].bytes.value, setting_.granule));
    for (std::uint32_t op = begin; op < end; ++op) near_[op % ops_] += sign * room;
  }

  // The slower link needs more time: its fetches are issued one behind the other, latest first, as far as there is
  // room.
  void bring_back_early(const Link& in) {
    std::vector<Stay*> far;
    for (Stay& gap : gaps_) {
      if (gap.tier > setting_.slow.value && gap.returns) far.push_back(&gap);
    }
    std::stable_sort(far.begin(), far.end(),
                     [&](const Stay* a, const Stay* b) { return a->next_use % ops_ > b->next_use % ops_; });
    std::int64_t free_until = 2 * starts_[ops_];
    for (Stay* gap : far) {
      const std::uint32_t shift = gap->next_use / ops_ * ops_;
      const std::int64_t due = starts_[gap->next_use % ops_];
      const std::int64_t begin =
          std::min(due, free_until) - transfer_time(trace_.tensors[gap->tensor].bytes, in.bytes_per_s).value * 11 / 10;
      free_until = begin;
      while (gap->fetch > gap->gone) {
        const std::uint32_t before = gap->fetch - 1;
        const std::int64_t at = starts_[before % ops_] - (before < shift ? starts_[ops_] : 0);
        if (at + trace_.ops[before % ops_].time.value < begin ||
            near_[before % ops_] +
                    static_cast<std::int64_t>(rounded(trace_.tensors[gap->tensor].bytes.value, setting_.granule)) >
                setting_.budget)
          break;
        occupy(before, gap->fetch, *gap, 1);
        gap->fetch = before;
      }
    }
  }

  const Trace& trace_;
  const Machine& machine_;
  const Setting& setting_;
  std::vector<Stay>& gaps_;
  std::uint32_t ops_;
  std::vector<std::int64_t> held_;    // [op]: bytes in the slow tier
  std::vector<std::int64_t> near_;    // [op]: bytes in the fastest
  std::vector<std::int64_t> starts_;  // [op]: when it begins without waiting
};

}  // namespace

void spread_over_tiers(const Trace& trace, const Uses& uses, const Machine& machine, const Setting& setting,
                       std::vector<Stay>& gaps) {
  if (trace.ops.empty() || machine.tiers.size() < 3) return;
  std::uint64_t all = 0;  // where even all of them at once fit into the first slow tier, it never overflows
  for (const Stay& gap : gaps) all += trace.tensors[gap.tensor].bytes.value;
  if (all <= machine.tiers[setting.slow.value].capacity.value / 100 * 98) return;
  Spread(trace, uses, machine, setting, gaps).run();
}

}  // namespace vedette::planning
