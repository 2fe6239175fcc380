// G10: Zhang, Zhou, Xu, Huang, Huang, Yan, Xu, Wang, Kim, Lipasti, Huang, "G10: Enabling An Efficient Unified GPU
// Memory and Storage Architecture with Smart Tensor Migrations", MICRO'23. After the paper and the scheduler of its
// artifact (platformxlab/G10).
//
// Kept: every inactive period of every tensor is a candidate, those of weights wrap around the step. Until no op is
//   over the line (0.99 of fast memory), take the period of most benefit: bytes x the time within it for which memory
//   is over the line, the period shortened by half of what its moves would take beside those already committed; ties by
//   bytes x duration. A period has to be longer than twice the move and a reserve (delta = 0.5 of one way). The
//   furthest tier (SSD) first; the nearest (host) where the SSD's queue is full from the period's start to the ideal
//   end, or where the period is too short for the SSD. Each link has a bucket a op (bandwidth x op time) that
//   commitments fill: evictions from the period's start on, fetches backwards from its end. A period whose eviction
//   would end after its fetch begins is left alone. Then fetches are made earlier, in order, while there is room under
//   the line.
// Changed: what the paper leaves to page faults and LRU (steps that its plan does not make fit) is evicted least
//   recently used first and fetched by the op that needs it. Allocation ahead of births is not modelled. Bytes in fast
//   memory are counted by op. A move to the SSD also fills the bucket of PCIe, as in the artifact, where the links
//   share a bus (Link::shared). An eviction and its fetch are in their buckets where a period wraps, too; the artifact
//   takes bandwidth for granted there. The artifact loosens the line by hand for two models; not here. The artifact's
//   own form is g10_of_artifact.cc.
// Not here: its unified page table, and overlaps inside one op.
//
// Cost of prepare: O((periods + what they span of ops that are not full) log); benefits only shrink, so a heap of stale
// ones finds the best exactly.
#include <algorithm>
#include <string>

#include "policy/canvas/ledger_policy.h"
#include "policy/canvas/room.h"
#include "policy/g10/bucket.h"
#include "policy/makers.h"

namespace vedette {
namespace {

using namespace planning;

class Scheduler {
 public:
  explicit Scheduler(Ledger& ledger)
      : ledger_(ledger),
        clock_(ledger.trace()),
        line_(ledger.capacity() / 100 * 99),
        tiers_(ledger.slow_tiers()),
        times_over_(ledger.ops()) {
    for (const TierIndex tier : tiers_) {
      out_.emplace_back(ledger.trace(), ledger.machine().link({0}, tier), 1);
      in_.emplace_back(ledger.trace(), ledger.machine().link(tier, {0}), 1);
    }
    std::vector<std::int64_t> loads(ledger.ops());
    for (std::uint32_t i = 0; i < ledger.ops(); ++i) {
      const std::int64_t load = ledger.load(i);
      loads[i] = load > line_ ? -load : -never_over;
      if (load <= line_) continue;
      ++over_count_;
      times_over_.add(i, ledger.trace().ops[i].time.value);
    }
    over_ = Room(loads);
  }

  void schedule() {
    std::vector<Candidate> best;  // a heap
    for (std::uint32_t g = 0; g < ledger_.gaps().size() && !tiers_.empty(); ++g) {
      if (ledger_.gaps()[g].dead) continue;
      if (const Candidate offer = offer_of(g, benefit_of(ledger_.gaps()[g])); offer.benefit > 0) best.push_back(offer);
    }
    std::make_heap(best.begin(), best.end());
    while (over_count_ > 0 && !best.empty()) {
      const Candidate top = best.front();
      const bool looks = evaluations_ < most_evaluations;
      evaluations_ += looks ? 1 : 0;
      const double now = looks ? benefit_of(ledger_.gaps()[top.gap]) : top.benefit;
      taken_unseen_ += looks ? 0 : 1;
      if (now < top.benefit && now > 0) {
        sink(best, offer_of(top.gap, now));
        continue;
      }
      std::pop_heap(best.begin(), best.end());
      best.pop_back();
      if (now >= top.benefit && commit(top.gap)) chosen_.push_back(top.gap);
    }
    fetch_eagerly();
  }

  // How far it came, where it did not come to the end.
  std::vector<std::string> reasons() const {
    if (taken_unseen_ == 0) return {};
    return {"g10: after " + std::to_string(most_evaluations) +
            " evaluations of benefits its limit on work was reached; " + std::to_string(taken_unseen_) +
            " periods were taken by the benefit that they had when they were last looked at"};
  }

 private:
  struct Candidate {
    double benefit, area;
    std::uint32_t gap;
    bool operator<(const Candidate& o) const {
      return std::tie(benefit, area, o.gap) < std::tie(o.benefit, o.area, gap);
    }
  };
  Candidate offer_of(std::uint32_t g, double benefit) const {
    const Gap& gap = ledger_.gaps()[g];
    return {benefit, size_of(gap) * static_cast<double>(length(gap)), g};
  }

  // In place of the first of the heap, which is not below it. Most sink a level or two, where a heap's own pop would go
  // down to the leaves.
  static void sink(std::vector<Candidate>& heap, const Candidate& made) {
    std::size_t at = 0;
    for (std::size_t child = 1; child < heap.size(); child = 2 * at + 1) {
      if (child + 1 < heap.size() && heap[child] < heap[child + 1]) ++child;
      if (!(made < heap[child])) break;
      heap[at] = heap[child];
      at = child;
    }
    heap[at] = made;
  }

  double size_of(const Gap& gap) const { return static_cast<double>(ledger_.bytes(gap.tensor).value); }
  std::int64_t length(const Gap& gap) const { return clock_.at(gap.before) - clock_.at(gap.after + 1); }

  double benefit_of(const Gap& gap) {
    const double half = size_of(gap) / 2;
    const std::uint32_t from = out_.back().forward(half, gap.after + 1, gap.before),
                        to = in_.back().backward(half, gap.after + 1, gap.before);
    return from < to ? size_of(gap) * static_cast<double>(time_over(to) - time_over(from)) : 0;
  }

  // Of the ops before this one, counted on past the end of the step: the time for which memory is over the line.
  std::int64_t time_over(std::uint32_t op) const {
    return op / ledger_.ops() * times_over_.before(ledger_.ops()) + times_over_.before(op % ledger_.ops());
  }

  // Twice the move, and half of one way in reserve.
  bool long_enough(const Gap& gap, TierIndex tier) const {
    const std::int64_t one_way = one_way_time(gap, tier);
    return length(gap) > 2 * one_way + one_way / 2;
  }
  std::int64_t one_way_time(const Gap& gap, TierIndex tier) const {
    return move_time(ledger_.machine(), {0}, tier, ledger_.bytes(gap.tensor)) + ledger_.machine().fault_time.value;
  }

  bool commit(std::uint32_t g) {
    const Gap& gap = ledger_.gaps()[g];
    std::size_t where = tiers_.size() - 1;
    const std::uint32_t begin = gap.after + 1;
    if (tiers_.size() > 1) {
      const std::int64_t ends =
          clock_.at(begin) + move_time(ledger_.machine(), {0}, tiers_.back(), ledger_.bytes(gap.tensor));
      const std::uint32_t ideal = std::min(clock_.last_at_or_before(ends), gap.before);
      if (!long_enough(gap, tiers_.back()) || (!out_.back().any(begin, std::max(ideal, begin + 1)) && host_has_room(g)))
        where = 0;
    }
    if (!long_enough(gap, tiers_[where]) || (where == 0 && tiers_.size() > 1 && !host_has_room(g))) return false;
    if (where == tiers_.size() - 1 && ledger_.tier_for(g, gap.after, Ledger::From::furthest) != tiers_.back())
      return false;
    const std::uint32_t cleared = out_[where].forward(size_of(gap), begin, gap.before),
                        back = in_[where].backward(size_of(gap), begin, gap.before);
    if (back <= cleared + 1 || cleared + 1 - gap.after >= ledger_.ops()) return false;
    fill(out_, where, size_of(gap), begin, gap.before);
    fill(in_, where, size_of(gap), back, gap.before);
    spend_away(g, cleared + 1, back, tiers_[where]);
    return true;
  }

  void spend_away(std::uint32_t g, std::uint32_t gone, std::uint32_t back, TierIndex tier) {
    const Gap& gap = ledger_.gaps()[g];
    ledger_.leave(g, {.leave = gap.after, .gone = gone, .back = back, .tier = tier});
    const std::uint32_t n = ledger_.ops();
    const auto size = static_cast<std::int64_t>(ledger_.size(gap.tensor));
    for (std::uint32_t begin = gone; begin < back;) {  // the part in this step, and the part in the next
      const std::uint32_t end = std::min(back, (begin / n + 1) * n), first = begin % n, last = first + (end - begin);
      over_.add(first, last, size);
      while (const auto op = over_.last_above(first, last, -line_ - 1)) {
        over_.add(*op, *op + 1, -never_over);
        times_over_.add(*op, -ledger_.trace().ops[*op].time.value);
        --over_count_;
      }
      begin = end;
    }
  }

  // Links that share a bus share its bytes.
  void fill(std::vector<Bucket>& buckets, std::size_t where, double bytes, std::uint32_t begin,
            std::uint32_t end) const {
    for (std::size_t k = 0; k < buckets.size(); ++k) {
      if (k == where || bus_of(k, where)) buckets[k].fill(bytes, begin, end);
    }
  }

  bool host_has_room(std::uint32_t g) const { return ledger_.tier_for(g, ledger_.gaps()[g].after) == tiers_.front(); }

  bool bus_of(std::size_t a, std::size_t b) const {
    return takes_from(*ledger_.machine().link({0}, tiers_[b]), *ledger_.machine().link({0}, tiers_[a]));
  }

  void fetch_eagerly() {
    std::stable_sort(chosen_.begin(), chosen_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return ledger_.absence(a)->back < ledger_.absence(b)->back;
    });
    for (const std::uint32_t g : chosen_) {
      Absence out = *ledger_.absence(g);
      const auto size = static_cast<std::int64_t>(ledger_.size(ledger_.gaps()[g].tensor));
      std::uint32_t low = std::min(out.gone + 1, out.back);  // the first op from which on there is room, by halves
      for (std::uint32_t high = out.back; low < high;) {
        const std::uint32_t middle = low + (high - low) / 2;
        const bool fits = ledger_.most(middle, out.back) + size <= line_;
        (fits ? high : low) = fits ? middle : middle + 1;
      }
      out.back = low;
      ledger_.leave(g, out);
    }
  }

  Ledger& ledger_;
  Clock clock_;
  std::int64_t line_;
  std::vector<TierIndex> tiers_;
  std::vector<Bucket> out_, in_;  // of each slower tier
  static constexpr std::int64_t never_over = std::int64_t{1} << 60;
  Room over_{{}};        // [op]: less its load while memory is over the line; far below that from then on
  TimeOver times_over_;  // of ops over the line
  std::size_t over_count_ = 0;
  // Each period that is taken shrinks the benefit of most others, and the paper sorts all of them again each time.
  static constexpr std::uint64_t most_evaluations = 20'000'000;
  std::uint64_t evaluations_ = 0, taken_unseen_ = 0;
  std::vector<std::uint32_t> chosen_;
};

class G10 final : public LedgerPolicy {
 public:
  G10() : LedgerPolicy("g10") {}

 private:
  Result<Plan> decide(Ledger& ledger) override {
    Scheduler scheduler(ledger);
    scheduler.schedule();
    if (!ledger.settle({}, false)) return no_room(ledger);
    Plan plan = ledger.write();
    plan.reasons = scheduler.reasons();
    return plan;
  }
};

}  // namespace

std::unique_ptr<Policy> make_g10(std::uint64_t) { return std::make_unique<G10>(); }

}  // namespace vedette
