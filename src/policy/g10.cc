// G10: Zhang, Zhou, Xu, Huang, Huang, Yan, Xu, Wang, Kim, Lipasti, Huang, "G10: Enabling An Efficient Unified GPU Memory and Storage
// Architecture with Smart Tensor Migrations", MICRO'23, after the paper and the scheduler of its artifact (platformxlab/G10).
//
// Kept: every inactive period of every tensor is a candidate, those of weights wrap around the step. Until no op is over the line (0.99 of
//   fast memory), take the period of most benefit: bytes x the time within it for which memory is over the line, the period shortened
//   by half of what its moves would take beside those already committed; ties by bytes x duration. A period has to be longer than twice
//   the move and a reserve (delta = 0.5 of one way). The furthest tier (SSD) first; the nearest (host) where the SSD's queue is full
//   from the period's start to the ideal end, or where the period is too short for the SSD. Each link has a bucket a op (bandwidth x op
//   time) that commitments fill: evictions from the period's start on, fetches backwards from its end. A period whose eviction would
//   end after its fetch begins is left alone. Then fetches are made earlier, in order, while there is room under the line.
// Changed: what the paper leaves to page faults and LRU (steps that its plan does not make fit) is evicted least recently used first and
//   fetched by the op that needs it. Allocation ahead of births is not modelled. Bytes in fast memory are counted by op. A move to the SSD
//   also fills the bucket of PCIe, as in the artifact, where the links share a bus (Link::shared). An eviction and its fetch
//   are in their buckets where a period wraps, too; the artifact takes bandwidth for granted there. The artifact loosens the line by hand
//   for two models; not here.
// Not here: its unified page table, and what overlaps inside one op.
//
// Cost of prepare: O(periods chosen * ops) at worst; benefits only shrink, so a heap of stale ones finds the best exactly.
#include <algorithm>
#include <queue>

#include "policy/ledger.h"
#include "policy/makers.h"

namespace vedette {
namespace {

using namespace planning;

// Bytes that a link can still carry during each op.
class Bucket {
 public:
  Bucket(const Trace& trace, const Link* link) {
    const double speed = link == nullptr || link->bytes_per_s == 0 ? 1e18 : static_cast<double>(link->bytes_per_s);
    for (const Op& op : trace.ops) left_.push_back(speed * static_cast<double>(op.time.value) / 1e9);
  }
  bool any(std::uint32_t begin, std::uint32_t end) const {
    for (std::uint32_t i = begin; i < end; ++i) {
      if (left(i) > 0) return true;
    }
    return false;
  }
  // The op in which the last of `bytes` is through, from `begin` on, or `end` where they are not.
  std::uint32_t forward(double bytes, std::uint32_t begin, std::uint32_t end) const {
    for (std::uint32_t i = begin; i < end; ++i) {
      if ((bytes -= left(i)) <= 0) return i;
    }
    return end;
  }
  // The op in which a move has to begin that ends before `end`; `begin` - 1 where that is too late.
  std::uint32_t backward(double bytes, std::uint32_t begin, std::uint32_t end) const {
    for (std::uint32_t i = end; i > begin; --i) {
      if ((bytes -= left(i - 1)) <= 0) return i - 1;
    }
    return begin == 0 ? 0 : begin - 1;
  }
  void fill(double bytes, std::uint32_t begin, std::uint32_t end) {
    for (std::uint32_t i = begin; i < end && bytes > 0; ++i) {
      double& here = left_[i % left_.size()];
      const double taken = std::min(here, bytes);
      here -= taken;
      bytes -= taken;
    }
  }

 private:
  double left(std::uint32_t op) const { return left_[op % left_.size()]; }
  std::vector<double> left_;
};

class Scheduler {
 public:
  explicit Scheduler(Ledger& ledger)
      : ledger_(ledger), clock_(ledger.trace()), line_(ledger.capacity() / 100 * 99), tiers_(ledger.slow_tiers()), over_(ledger.ops()) {
    for (const TierIndex tier : tiers_) {
      out_.emplace_back(ledger.trace(), ledger.machine().link({0}, tier));
      in_.emplace_back(ledger.trace(), ledger.machine().link(tier, {0}));
    }
    for (std::uint32_t i = 0; i < ledger.ops(); ++i) over_count_ += over_[i] = ledger.load(i) > line_;
  }

  void schedule() {
    struct Candidate {
      double benefit, area;
      std::uint32_t gap;
      bool operator<(const Candidate& o) const { return std::tie(benefit, area, o.gap) < std::tie(o.benefit, o.area, gap); }
    };
    std::priority_queue<Candidate> best;
    const auto offer = [&](std::uint32_t g) {
      const Gap& gap = ledger_.gaps()[g];
      const double benefit = benefit_of(gap);
      if (benefit > 0) best.push({benefit, size_of(gap) * static_cast<double>(length(gap)), g});
    };
    for (std::uint32_t g = 0; g < ledger_.gaps().size(); ++g) {
      if (!ledger_.gaps()[g].dead && !tiers_.empty()) offer(g);
    }
    while (over_count_ > 0 && !best.empty()) {
      const Candidate top = best.top();
      best.pop();
      const double now = benefit_of(ledger_.gaps()[top.gap]);
      if (now < top.benefit) {
        offer(top.gap);
      } else if (commit(top.gap)) {
        chosen_.push_back(top.gap);
      }
    }
    fetch_eagerly();
  }

 private:
  double size_of(const Gap& gap) const { return static_cast<double>(ledger_.bytes(gap.tensor).value); }
  std::int64_t length(const Gap& gap) const { return clock_.at(gap.before) - clock_.at(gap.after + 1); }

  double benefit_of(const Gap& gap) const {
    const double half = size_of(gap) / 2;
    const std::uint32_t from = out_.back().forward(half, gap.after + 1, gap.before), to = in_.back().backward(half, gap.after + 1, gap.before);
    std::int64_t time = 0;
    for (std::uint32_t i = from; i < to; ++i) {
      if (over_[i % ledger_.ops()]) time += ledger_.trace().ops[i % ledger_.ops()].time.value;
    }
    return size_of(gap) * static_cast<double>(time);
  }

  // Twice the move, and half of one way in reserve.
  bool long_enough(const Gap& gap, TierIndex tier) const {
    const std::int64_t one_way = move_time(ledger_.machine(), {0}, tier, ledger_.bytes(gap.tensor)) + ledger_.machine().fault_time.value;
    return length(gap) > 2 * one_way + one_way / 2;
  }

  bool commit(std::uint32_t g) {
    const Gap& gap = ledger_.gaps()[g];
    std::size_t where = tiers_.size() - 1;
    const std::uint32_t begin = gap.after + 1;
    if (tiers_.size() > 1) {
      const std::int64_t ends = clock_.at(begin) + move_time(ledger_.machine(), {0}, tiers_.back(), ledger_.bytes(gap.tensor));
      const std::uint32_t ideal = std::min(clock_.last_at_or_before(ends), gap.before);
      if (!long_enough(gap, tiers_.back()) || (!out_.back().any(begin, std::max(ideal, begin + 1)) && host_has_room(g))) where = 0;
    }
    if (!long_enough(gap, tiers_[where]) || (where == 0 && tiers_.size() > 1 && !host_has_room(g))) return false;
    if (where == tiers_.size() - 1 && ledger_.tier_for(g, gap.after, Ledger::From::furthest) != tiers_.back()) return false;
    const std::uint32_t cleared = out_[where].forward(size_of(gap), begin, gap.before), back = in_[where].backward(size_of(gap), begin, gap.before);
    if (back <= cleared + 1 || cleared + 1 - gap.after >= ledger_.ops()) return false;
    for (std::size_t k = 0; k < tiers_.size(); ++k) {
      if (k != where && !bus_of(k, where)) continue;
      out_[k].fill(size_of(gap), begin, gap.before);
      in_[k].fill(size_of(gap), back, gap.before);
    }
    ledger_.leave(g, {.leave = gap.after, .gone = cleared + 1, .back = back, .tier = tiers_[where]});
    for (std::uint32_t i = cleared + 1; i < back; ++i) {
      if (!over_[i % ledger_.ops()] || ledger_.load(i) > line_) continue;
      over_[i % ledger_.ops()] = false;
      --over_count_;
    }
    return true;
  }

  bool host_has_room(std::uint32_t g) const { return ledger_.tier_for(g, ledger_.gaps()[g].after) == tiers_.front(); }

  // Whether what link `b` carries also takes from link `a`: they share a bus, and `a` is as fast as it.
  bool bus_of(std::size_t a, std::size_t b) const {
    const Link* one = ledger_.machine().link({0}, tiers_[a]);
    const Link* other = ledger_.machine().link({0}, tiers_[b]);
    return one->shared && one->shared == other->shared && one->bytes_per_s > other->bytes_per_s;
  }

  void fetch_eagerly() {
    std::stable_sort(chosen_.begin(), chosen_.end(), [&](std::uint32_t a, std::uint32_t b) { return ledger_.absence(a)->back < ledger_.absence(b)->back; });
    for (const std::uint32_t g : chosen_) {
      Absence out = *ledger_.absence(g);
      const auto size = static_cast<std::int64_t>(ledger_.size(ledger_.gaps()[g].tensor));
      while (out.back > out.gone + 1 && ledger_.load(out.back - 1) + size <= line_) --out.back;
      ledger_.leave(g, out);
    }
  }

  Ledger& ledger_;
  Clock clock_;
  std::int64_t line_;
  std::vector<TierIndex> tiers_;
  std::vector<Bucket> out_, in_;  // of each slower tier
  std::vector<char> over_;        // [op]: memory is over the line
  std::size_t over_count_ = 0;
  std::vector<std::uint32_t> chosen_;
};

class G10 final : public Policy {
 public:
  std::string_view name() const noexcept override { return "g10"; }

  Result<Plan> prepare(const Trace& trace, const Machine& machine) override {
    Ledger ledger(trace, machine);
    if (auto error = refusal(name(), ledger)) return *error;
    if (ledger.fits()) return ledger.write();
    Scheduler(ledger).schedule();
    if (!ledger.settle({}, false)) return no_room(name(), ledger);
    return ledger.write();
  }
};

}  // namespace

std::unique_ptr<Policy> make_g10(std::uint64_t) { return std::make_unique<G10>(); }

}  // namespace vedette
