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
// "g10+" is the artifact's own form of it, to the letter where it matters. Its planner takes a GB for 2^30 bytes, and its simulator for
//   10^9. Periods that wrap count whole, go to the furthest tier that they are long enough for, and neither ask nor fill the
//   buckets. A period goes to the host where its eviction alone would end in the op it begins in. Fetches are made earlier while memory is under the line,
//   whatever they bring. At run time all of this is hints to a driver that pages, of births, too (src/sim/pager.cc). The limit that it loosens
//   by hand for BERT-512 is not loosened here.
//
// Cost of prepare: O((periods + what they span of ops that are not full) log); benefits only shrink, so a heap of stale ones finds the best exactly.
#include <algorithm>
#include <numeric>
#include <string>

#include "policy/ledger.h"
#include "policy/makers.h"
#include "policy/vedette_room.h"

namespace vedette {
namespace {

using namespace planning;

// Bytes that a link can still carry during each op.
class Bucket {
 public:
  Bucket(const Trace& trace, const Link* link, double scale) {
    const double speed = link == nullptr || link->bytes_per_s == 0 ? 1e18 : scale * static_cast<double>(link->bytes_per_s);
    for (const Op& op : trace.ops) left_.push_back(speed * static_cast<double>(op.time.value) / 1e9);
    capacity_ = left_;
    up_.resize(left_.size() + 1);
    std::iota(up_.begin(), up_.end(), 0U);
    down_ = up_;
    for (std::uint32_t i = 0; i < left_.size(); ++i) {
      if (left_[i] <= 0) full(i);
    }
  }
  bool any(std::uint32_t begin, std::uint32_t end) { return next(begin) < end; }
  // The op in which the last of `bytes` is through, from `begin` on, or `end` where they are not.
  std::uint32_t forward(double bytes, std::uint32_t begin, std::uint32_t end) {
    for (std::uint32_t i = next(begin); i < end; i = next(i + 1)) {
      if ((bytes -= left(i)) <= 0) return i;
    }
    return end;
  }
  // The op in which a move has to begin that ends before `end`; `begin` - 1 where that is too late.
  std::uint32_t backward(double bytes, std::uint32_t begin, std::uint32_t end) {
    for (std::uint32_t i = previous(end); i > begin; i = previous(i - 1)) {
      if ((bytes -= left(i - 1)) <= 0) return i - 1;
    }
    return begin == 0 ? 0 : begin - 1;
  }
  void fill(double bytes, std::uint32_t begin, std::uint32_t end) {
    fill(bytes, begin, end, [](std::uint32_t, double) {});
  }
  // `told` hears what each op takes of it.
  template <class Told>
  void fill(double bytes, std::uint32_t begin, std::uint32_t end, const Told& told) {
    for (std::uint32_t i = next(begin); i < end && bytes > 0; i = next(i + 1)) {
      const auto op = i % static_cast<std::uint32_t>(left_.size());
      const double taken = std::min(left_[op], bytes);
      take(op, taken);
      bytes -= taken;
      told(op, taken);
    }
  }
  void take(std::uint32_t op, double bytes) {
    if (left_[op] <= 0) return;
    left_[op] -= bytes;
    if (left_[op] <= 0) full(op);
  }
  double left(std::uint32_t op) const { return left_[op % left_.size()]; }
  double capacity(std::uint32_t op) const { return capacity_[op]; }

 private:
  // Full ops are stepped over: a period may span thousands of them.
  void full(std::uint32_t op) {
    up_[op] = op + 1;
    down_[op + 1] = op;
  }
  static std::uint32_t find(std::vector<std::uint32_t>& links, std::uint32_t at) {
    while (links[at] != at) at = links[at] = links[links[at]];
    return at;
  }
  // The first op from this one on that is not full, counted on past the end of the step; of two full steps, the end.
  std::uint32_t next(std::uint32_t op) {
    const auto n = static_cast<std::uint32_t>(left_.size());
    for (; op < 2 * n; op = (op / n + 1) * n) {
      if (const std::uint32_t found = find(up_, op % n); found < n) return op / n * n + found;
    }
    return 2 * n;
  }
  // The end of the last op before `end` that is not full; 0: there is none.
  std::uint32_t previous(std::uint32_t end) {
    const auto n = static_cast<std::uint32_t>(left_.size());
    while (end > 0) {
      const std::uint32_t lap = (end - 1) / n * n, found = find(down_, end - lap);
      if (found > 0) return lap + found;
      end = lap;
    }
    return 0;
  }

  std::vector<double> left_, capacity_;
  std::vector<std::uint32_t> up_, down_;  // union-find: [op] to the next that is not full, [end of an op] to the end of the last
};

enum class Form { paper, artifact };

class Scheduler {
 public:
  Scheduler(Ledger& ledger, Form form)
      : ledger_(ledger), form_(form), clock_(ledger.trace()), line_(ledger.capacity() / 100 * 99), tiers_(ledger.slow_tiers()), sums_(ledger.ops() + 1) {
    const double scale = form == Form::artifact ? 1.073741824 : 1;
    for (const TierIndex tier : tiers_) {
      out_.emplace_back(ledger.trace(), ledger.machine().link({0}, tier), scale);
      in_.emplace_back(ledger.trace(), ledger.machine().link(tier, {0}), scale);
    }
    std::vector<std::int64_t> loads(ledger.ops());
    for (std::uint32_t i = 0; i < ledger.ops(); ++i) {
      const std::int64_t load = ledger.load(i);
      loads[i] = load > line_ ? -load : -never_over;
      if (load <= line_) continue;
      ++over_count_;
      add_over(i, ledger.trace().ops[i].time.value);
    }
    over_ = Room(loads);
    host_ = Room(std::vector<std::int64_t>(ledger.ops()));
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
    return {"g10: after " + std::to_string(most_evaluations) + " evaluations of benefits its limit on work was reached; " + std::to_string(taken_unseen_) +
            " periods were taken by the benefit that they had when they were last looked at"};
  }

 private:
  struct Candidate {
    double benefit, area;
    std::uint32_t gap;
    bool operator<(const Candidate& o) const { return std::tie(benefit, area, o.gap) < std::tie(o.benefit, o.area, gap); }
  };
  Candidate offer_of(std::uint32_t g, double benefit) const {
    const Gap& gap = ledger_.gaps()[g];
    return {benefit, size_of(gap) * static_cast<double>(length(gap)), g};
  }

  // In place of the first of the heap, which is not below it. Most sink a level or two, where a heap's own pop would go down to the leaves.
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

  bool taken_for_granted(const Gap& gap) const { return form_ == Form::artifact && gap.before >= ledger_.ops(); }

  double benefit_of(const Gap& gap) {
    const double half = size_of(gap) / 2;
    std::uint32_t from = gap.after + 1, to = gap.before;
    if (!taken_for_granted(gap)) {
      from = out_.back().forward(half, gap.after + 1, gap.before);
      to = in_.back().backward(half, gap.after + 1, gap.before);
    }
    return from < to ? size_of(gap) * static_cast<double>(time_over(to) - time_over(from)) : 0;
  }

  // Of the ops before this one, counted on past the end of the step: the time for which memory is over the line.
  std::int64_t time_over(std::uint32_t op) const {
    const auto sum = [&](std::uint32_t end) {
      std::int64_t time = 0;
      for (; end > 0; end &= end - 1) time += sums_[end];
      return time;
    };
    return op / ledger_.ops() * sum(ledger_.ops()) + sum(op % ledger_.ops());
  }
  void add_over(std::uint32_t op, std::int64_t time) {
    for (std::uint32_t at = op + 1; at <= ledger_.ops(); at += at & (~at + 1)) sums_[at] += time;
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
    if (taken_for_granted(gap)) return commit_unasked(g);
    std::size_t where = tiers_.size() - 1;
    const std::uint32_t begin = gap.after + 1;
    if (tiers_.size() > 1) {
      const std::int64_t ends = clock_.at(begin) + move_time(ledger_.machine(), {0}, tiers_.back(), ledger_.bytes(gap.tensor));
      const std::uint32_t ideal = std::min(clock_.last_at_or_before(ends), gap.before);
      if (!long_enough(gap, tiers_.back()) || (!out_.back().any(begin, form_ == Form::artifact ? ideal : std::max(ideal, begin + 1)) && host_has_room(g))) where = 0;
    }
    if (!long_enough(gap, tiers_[where]) || (where == 0 && tiers_.size() > 1 && !host_has_room(g))) return false;
    if (where == tiers_.size() - 1 && ledger_.tier_for(g, gap.after, Ledger::From::furthest) != tiers_.back()) return false;
    const std::uint32_t cleared = out_[where].forward(size_of(gap), begin, gap.before), back = in_[where].backward(size_of(gap), begin, gap.before);
    if (back <= cleared + 1 || cleared + 1 - gap.after >= ledger_.ops()) return false;
    fill(out_, where, size_of(gap), begin, gap.before);
    fill(in_, where, size_of(gap), back, gap.before);
    spend_away(g, cleared + 1, back, tiers_[where]);
    return true;
  }

  // The artifact's way with periods that wrap: nothing is asked of the links.
  bool commit_unasked(std::uint32_t g) {
    const Gap& gap = ledger_.gaps()[g];
    std::size_t where = tiers_.size() - 1;
    if (!long_enough(gap, tiers_[where])) where = 0;
    if (!long_enough(gap, tiers_[where]) || ledger_.tier_for(g, gap.after, where == 0 ? Ledger::From::nearest : Ledger::From::furthest) != tiers_[where]) return false;
    const std::int64_t one_way = one_way_time(gap, tiers_[where]);
    const std::uint32_t gone = std::clamp(clock_.last_at_or_before(clock_.at(gap.after + 1) + one_way) + 1, gap.after + 1, std::min(gap.before, gap.after + ledger_.ops() - 1));
    const std::uint32_t back = std::clamp(clock_.last_at_or_before(clock_.at(gap.before) - one_way - one_way / 2), gap.after + 1, gap.before);
    if (back == gap.after + 1) return false;
    spend_away(g, gone, std::max(gone, back), tiers_[where]);
    return false;  // and its fetch is not made earlier
  }

  void spend_away(std::uint32_t g, std::uint32_t gone, std::uint32_t back, TierIndex tier) {
    const Gap& gap = ledger_.gaps()[g];
    ledger_.leave(g, {.leave = gap.after, .gone = gone, .back = back, .tier = tier});
    const std::uint32_t n = ledger_.ops();
    if (tier == tiers_.front()) {
      host_.add(gap.after, std::min(gap.before, n), static_cast<std::int64_t>(ledger_.bytes(gap.tensor).value));
      if (gap.before > n) host_.add(0, gap.before - n, static_cast<std::int64_t>(ledger_.bytes(gap.tensor).value));
    }
    const auto size = static_cast<std::int64_t>(ledger_.size(ledger_.gaps()[g].tensor));
    for (std::uint32_t begin = gone; begin < back;) {  // the part in this step, and the part in the next
      const std::uint32_t end = std::min(back, (begin / n + 1) * n), first = begin % n, last = first + (end - begin);
      over_.add(first, last, size);
      while (const auto op = over_.last_above(first, last, -line_ - 1)) {
        over_.add(*op, *op + 1, -never_over);
        add_over(static_cast<std::uint32_t>(*op), -ledger_.trace().ops[*op].time.value);
        --over_count_;
      }
      begin = end;
    }
  }

  // Where links share a bus, what one carries the other cannot. The artifact counts it op by op, and takes from the SSD's what PCIe has not
  // left beside it, again for each eviction.
  void fill(std::vector<Bucket>& buckets, std::size_t where, double bytes, std::uint32_t begin, std::uint32_t end) const {
    if (form_ == Form::paper) {
      for (std::size_t k = 0; k < buckets.size(); ++k) {
        if (k == where || bus_of(k, where)) buckets[k].fill(bytes, begin, end);
      }
      return;
    }
    Bucket &near = buckets.front(), &far = buckets.back();
    const bool shared = buckets.size() > 1 && bus_of(0, buckets.size() - 1);
    buckets[where].fill(bytes, begin, end, [&](std::uint32_t op, double taken) {
      if (!shared) return;
      if (where != 0) return near.take(op, taken);
      if (near.left(op) <= 0) return far.take(op, far.left(op));
      if (const double excess = far.capacity(op) - near.left(op); excess > 0) far.take(op, excess);
    });
  }

  // The artifact asks for room all through the step.
  bool host_has_room(std::uint32_t g) const {
    const auto bytes = static_cast<std::int64_t>(ledger_.bytes(ledger_.gaps()[g].tensor).value);
    if (form_ == Form::artifact && host_.most(0, ledger_.ops()) + bytes > static_cast<std::int64_t>(ledger_.machine().tiers[tiers_.front().value].capacity.value)) return false;
    return ledger_.tier_for(g, ledger_.gaps()[g].after) == tiers_.front();
  }

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
      const auto size = form_ == Form::artifact ? 1 : static_cast<std::int64_t>(ledger_.size(ledger_.gaps()[g].tensor));
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
  Form form_;
  Clock clock_;
  std::int64_t line_;
  std::vector<TierIndex> tiers_;
  std::vector<Bucket> out_, in_;  // of each slower tier
  static constexpr std::int64_t never_over = std::int64_t{1} << 60;
  Room host_{{}};                 // [op]: bytes there
  Room over_{{}};                 // [op]: less its load while memory is over the line; far below that from then on
  std::vector<std::int64_t> sums_;  // of the times of ops over the line, as a Fenwick tree
  std::size_t over_count_ = 0;
  // Each period that is taken shrinks the benefit of most others, and the paper sorts all of them again each time.
  static constexpr std::uint64_t most_evaluations = 20'000'000;
  std::uint64_t evaluations_ = 0, taken_unseen_ = 0;
  std::vector<std::uint32_t> chosen_;
};

class G10 final : public Policy {
 public:
  std::string_view name() const noexcept override { return "g10"; }

  Result<Plan> prepare(const Trace& trace, const Machine& machine) override {
    Ledger ledger(trace, machine);
    if (auto error = refusal(ledger)) return *error;
    if (ledger.fits()) return ledger.write();
    Scheduler scheduler(ledger, Form::paper);
    scheduler.schedule();
    if (!ledger.settle({}, false)) return no_room(ledger);
    Plan plan = ledger.write();
    plan.reasons = scheduler.reasons();
    return plan;
  }
};

// What the artifact's plan says, told to a driver that pages.
class G10OfArtifact final : public Policy {
 public:
  std::string_view name() const noexcept override { return "g10+"; }

  Result<Plan> prepare(const Trace& trace, const Machine& machine) override {
    Ledger ledger(trace, machine);
    if (auto error = refusal(ledger)) return *error;
    hints_.assign(ledger.ops(), {});
    if (ledger.fits()) return ledger.write();
    hint_births(ledger);
    Scheduler scheduler(ledger, Form::artifact);
    scheduler.schedule();
    for (std::uint32_t g = 0; g < ledger.gaps().size(); ++g) {
      const auto& absence = ledger.absence(g);
      if (!absence) continue;
      const TensorIndex tensor{ledger.gaps()[g].tensor};
      hints_[(absence->leave + 1) % ledger.ops()].push_back(hint(tensor, {0}, absence->tier, Verb::evict));
      hints_[absence->back % ledger.ops()].push_back(hint(tensor, absence->tier, {0}, Verb::fetch));
    }
    Plan plan;
    plan.home.assign(trace.tensors.size(), {0});
    plan.fallback = Fallback::least_recent;
    plan.block = 256_KiB;
    plan.paging = Paging{};
    plan.reasons = scheduler.reasons();
    return plan;
  }

  Reaction react(const Event& event, const View&) override {
    if (event.kind != Event::Kind::op_begins || hints_.empty()) return {};
    Reaction reaction;
    reaction.moves = hints_[event.op.value];
    return reaction;
  }

 private:
  static Move hint(TensorIndex tensor, TierIndex source, TierIndex target, Verb verb) {
    return {.issue = {}, .due = {}, .extent = {.tensor = tensor, .part = {}}, .source = source, .target = target, .verb = verb};
  }

  // Memory is asked for ahead by the time that having it takes, which is the artifact's GPU_malloc_uspB, and counts from then on.
  void hint_births(Ledger& ledger) {
    constexpr double ns_per_byte = 0.000000814 * 1000;
    const Clock clock(ledger.trace());
    for (std::uint32_t i = 0; i < ledger.ops(); ++i) {
      for (const std::uint32_t t : ledger.uses().births[i]) {
        const auto ahead = static_cast<std::int64_t>(static_cast<double>(ledger.bytes(t).value) * ns_per_byte);
        const std::uint32_t when = std::min(i, clock.at(i) > ahead ? clock.last_at_or_before(clock.at(i) - ahead) : 0);
        hints_[when].push_back(hint({t}, {0}, {0}, Verb::fetch));
        for (std::uint32_t early = when; early < i; ++early) ledger.burden(early, static_cast<std::int64_t>(ledger.size(t)));
      }
    }
  }

  std::vector<std::vector<Move>> hints_;  // [op]: when it begins
};

}  // namespace

std::unique_ptr<Policy> make_g10(std::uint64_t) { return std::make_unique<G10>(); }
std::unique_ptr<Policy> make_g10_of_artifact(std::uint64_t) { return std::make_unique<G10OfArtifact>(); }

}  // namespace vedette
