// Deals stays between two slower tiers.
#include "policy/vedette/tiers.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <utility>

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

// Stays of one tensor that belong together: the first writes, and after each of the others the tensor leaves unchanged.
// It leaves for nothing where its bytes still are, so all of them go to one tier, which keeps the bytes in between.
struct Chain {
  std::uint32_t first = 0, last = 0;   // of the stays in order: [first, last)
  std::uint32_t begin = 0, end = 0;    // ops that find the bytes in the tier; counted on past the step's end
  std::int64_t bytes = 0, out_ns = 0;  // out_ns: its time to the further tier
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();  // of its stays that return, in ns
  std::uint32_t tier = 0;
};

struct Candidate {  // a chain that may go far
  std::uint32_t chain = 0;
  std::uint32_t begin = 0, end = 0;  // places among the ops at which the nearer tier is too full, as of the chain
  std::int64_t bytes = 0;
  std::size_t stretch = 0;
  bool far = false;
};

class Deal {
 public:
  Deal(const Trace& trace, const Machine& machine, const Setting& setting, std::uint32_t further,
       std::vector<Stay>& gaps)
      : trace_(trace),
        gaps_(gaps),
        further_(further),
        ops_(static_cast<std::uint32_t>(trace.ops.size())),
        capacity_(static_cast<std::int64_t>(machine.tiers[setting.slow.value].capacity.value / 100 * 98)),
        starts_(starts_of(trace)) {
    join_chains();
    hold_all();
    if (overflows_) find_candidates(*machine.link({further}, {0}), *machine.link({0}, {further}));
  }

  bool overflows() const { return overflows_; }

  // False where the nearer tier overflows whatever goes far.
  bool run(const TierShares& shares) {
    shares_ = &shares;
    const bool fit = shares.rule == TierShares::Rule::longest_first ? send_longest() : deal();
    for (const Candidate& each : candidates_) chains_[each.chain].tier = each.far ? further_ : 0;
    for (const Chain& chain : chains_) {
      for (std::uint32_t k = chain.first; k < chain.last; ++k) gaps_[stays_[k]].tier = chain.tier;
    }
    return fit;
  }

 private:
  std::int64_t time_of(const Stay& gap) const {
    return (starts_[gap.next_use % ops_] + (gap.next_use / ops_) * starts_[ops_]) - starts_[gap.last_use];
  }
  // A stay takes room in its tier from its evict to the end of its fetch.
  static std::uint32_t end_of(const Stay& gap) { return gap.next_use + 1; }

  // By tensor, then by last use.
  void join_chains() {
    std::vector<std::uint32_t> first(trace_.tensors.size() + 1);
    for (const Stay& gap : gaps_) ++first[gap.tensor];
    std::uint32_t sum = 0;
    for (std::uint32_t& each : first) each = sum += each;
    std::vector<std::uint32_t> order(gaps_.size());
    for (auto g = static_cast<std::uint32_t>(gaps_.size()); g-- > 0;) order[--first[gaps_[g].tensor]] = g;
    stays_.reserve(order.size()), chains_.reserve(order.size());
    for (std::uint32_t t = 0; t < trace_.tensors.size(); ++t) {
      if (first[t] == first[t + 1]) continue;
      const std::span all(order.data() + first[t], first[t + 1] - first[t]);
      std::sort(all.begin(), all.end(),
                [&](std::uint32_t a, std::uint32_t b) { return gaps_[a].last_use < gaps_[b].last_use; });
      join_chains_of(all);
    }
  }

  // All stays of one tensor, in order. Those of a persistent one follow each other around the step.
  void join_chains_of(std::span<const std::uint32_t> stays) {
    const bool around = trace_.tensors[gaps_[stays[0]].tensor].persistent;
    const auto joined = [&](std::size_t k) {
      return !gaps_[stays[k]].writes && (k > 0 || around) &&
             gaps_[stays[(k + stays.size() - 1) % stays.size()]].returns;
    };
    std::size_t head = 0;
    while (head < stays.size() && joined(head)) ++head;
    const bool endless = head == stays.size();  // never changed
    if (endless) head = 0;
    for (std::size_t k = 0; k < stays.size(); ++k) {
      const std::size_t at = (head + k) % stays.size();
      const Stay& gap = gaps_[stays[at]];
      const auto next = static_cast<std::uint32_t>(stays_.size());
      if (k == 0 || !joined(at)) chains_.push_back({.first = next, .begin = gap.last_use + 1, .bytes = bytes(gap)});
      Chain& chain = chains_.back();
      stays_.push_back(stays[at]);
      chain.last = next + 1;
      chain.end = std::min(end_of(gap) + (at < head ? ops_ : 0), chain.begin + ops_);
      if (gap.returns) chain.shortest = std::min(chain.shortest, time_of(gap));
    }
    if (endless) chains_.back().end = chains_.back().begin + ops_;
  }

  std::int64_t bytes(const Stay& gap) const {
    return static_cast<std::int64_t>(trace_.tensors[gap.tensor].bytes.value);
  }

  // held_[op]: bytes that the nearer tier keeps where nothing goes far.
  void hold_all() {
    std::vector<std::int64_t> change(std::size_t{ops_} + 1);
    for (const Chain& chain : chains_) {
      change[std::min(chain.begin, ops_)] += chain.bytes;
      change[std::min(chain.end, ops_)] -= chain.bytes;
      if (chain.end > ops_) change[0] += chain.bytes, change[chain.end - ops_] -= chain.bytes;
    }
    std::int64_t sum = 0;
    held_.resize(ops_);
    for (std::uint32_t op = 0; op < ops_; ++op) {
      held_[op] = sum += change[op];
      overflows_ = overflows_ || sum > capacity_;
    }
  }

  // Chains that overlap an op at which the nearer tier is too full, and for which the further one is not too slow.
  void find_candidates(const Link& in, const Link& out) {
    std::vector<std::uint32_t> full(2 * std::size_t{ops_} + 2);
    for (std::uint32_t op = 0; op <= 2 * ops_; ++op) full[op + 1] = full[op] + (held_[op % ops_] > capacity_ ? 1 : 0);
    for (const std::int64_t held : held_)
      if (held > capacity_) excess_.push_back(held - capacity_);
    for (std::uint32_t c = 0; c < chains_.size(); ++c) {
      Chain& chain = chains_[c];
      const Bytes size{static_cast<std::uint64_t>(chain.bytes)};
      if (full[chain.end] == full[chain.begin]) continue;
      chain.out_ns = transfer_time(size, out.bytes_per_s).value;
      const std::int64_t trips = 2 * (transfer_time(size, in.bytes_per_s).value + chain.out_ns);
      if (chain.shortest < trips) continue;
      candidates_.push_back({.chain = c, .begin = full[chain.begin], .end = full[chain.end], .bytes = chain.bytes});
    }
  }

  // The smallest multiple of the weights that leaves to the nearer tier what it holds.
  bool deal() {
    std::stable_sort(candidates_.begin(), candidates_.end(), [&](const Candidate& a, const Candidate& b) {
      return chains_[a.chain].begin < chains_[b.chain].begin;
    });
    cut_stretches();
    double low = 0, high = 1;
    bool fit = fits(high);
    for (; !fit && high < 1'000; fit = fits(high)) high *= 2;  // weights below 1 may need a larger multiple
    if (!fit) return false;
    for (int i = 0; i < 16; ++i) {
      const double middle = (low + high) / 2;
      (fits(middle) ? high : low) = middle;
    }
    return fits(high);
  }

  // Of the chains that overlap an op at which the nearer tier is still too full, those of the longest stays first.
  bool send_longest() {
    std::stable_sort(candidates_.begin(), candidates_.end(), [&](const Candidate& a, const Candidate& b) {
      return chains_[a.chain].shortest > chains_[b.chain].shortest;
    });
    const auto places = static_cast<std::uint32_t>(excess_.size());
    for (Candidate& each : candidates_) {
      bool over = false;
      for (std::uint32_t place = each.begin; place < each.end && !over; ++place) over = excess_[place % places] > 0;
      if (!over) continue;
      for (std::uint32_t place = each.begin; place < each.end; ++place) excess_[place % places] -= each.bytes;
      each.far = true;
    }
    return *std::max_element(excess_.begin(), excess_.end()) <= 0;
  }

  // Equal parts of the bytes that are dealt.
  void cut_stretches() {
    std::int64_t all = 0, sum = 0;
    for (const Candidate& each : candidates_) all += each.bytes;
    for (Candidate& each : candidates_) {
      each.stretch = static_cast<std::size_t>(sum / (all / static_cast<std::int64_t>(TierShares::stretches) + 1));
      sum += each.bytes;
    }
  }

  // Sends far the units of that multiple of the weights; whether the rest fits.
  bool fits(double multiple) {
    if (shares_->rule == TierShares::Rule::far_keeps_up) {
      send_while_far_keeps_up(multiple);
    } else {
      send_shares(multiple);
    }
    const auto places = static_cast<std::uint32_t>(excess_.size());
    change_.assign(std::size_t{places} + 1, 0);
    for (const Candidate& each : candidates_) {
      if (!each.far) continue;
      const std::uint32_t begin = each.begin < places ? each.begin : each.begin - places,
                          end = begin + (each.end - each.begin);
      change_[begin] += each.bytes;
      change_[std::min(end, places)] -= each.bytes;
      if (end > places) change_[0] += each.bytes, change_[end - places] -= each.bytes;
    }
    std::int64_t far = 0;
    for (std::uint32_t place = 0; place < places; ++place)
      if (excess_[place] > (far += change_[place])) return false;
    return true;
  }

  void send_shares(double multiple) {
    std::array<double, TierShares::stretches> shares{};
    for (std::size_t k = 0; k < shares.size(); ++k) shares[k] = std::min(1.0, multiple * shares_->weights[k]);
    double due = 0;  // bytes that should have gone far by now
    for (Candidate& each : candidates_) {
      const auto size = static_cast<double>(each.bytes);
      due += shares[each.stretch] * size;
      each.far = due >= size / 2;
      if (each.far) due -= size;
    }
  }

  void send_while_far_keeps_up(double multiple) {
    const auto step = static_cast<double>(starts_[ops_]);
    std::int64_t idle = 0;  // the link's time
    for (Candidate& each : candidates_) {
      const Chain& chain = chains_[each.chain];
      const std::int64_t begin = starts_[std::min(chain.begin, ops_)], ends = std::max(idle, begin) + chain.out_ns;
      each.far = static_cast<double>(ends - begin) <= multiple * shares_->weights[each.stretch] * step;
      if (each.far) idle = ends;
    }
  }

  const Trace& trace_;
  std::vector<Stay>& gaps_;
  const std::uint32_t further_, ops_;
  const std::int64_t capacity_;
  const TierShares* shares_ = nullptr;
  std::vector<std::int64_t> starts_;  // [op]: when it begins without stalls
  std::vector<std::int64_t> held_;    // [op]
  bool overflows_ = false;
  std::vector<std::uint32_t> stays_;  // of all chains, one after the other
  std::vector<Chain> chains_;
  std::vector<Candidate> candidates_;
  std::vector<std::int64_t> excess_, change_;  // [place]: bytes that the nearer tier does not hold; for `fits`
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

void fetch_far_early(const Trace& trace, const Costs& costs, const Machine& machine, const Setting& setting,
                     std::vector<Stay>& gaps) {
  const std::uint32_t further = tier_behind(machine, setting.slow);
  std::vector<Stay*> far;
  for (Stay& gap : gaps) {
    if (gap.tier == further && further != 0 && gap.returns) far.push_back(&gap);
  }
  if (far.empty()) return;
  const auto ops = static_cast<std::uint32_t>(trace.ops.size());
  const std::vector<std::int64_t> starts = starts_of(trace);
  std::vector<std::int64_t> near = costs.occupied;
  const auto room_of = [&](const Stay& gap) { return costs.room[gap.tensor]; };
  std::vector<std::int64_t> change(std::size_t{ops} + 1);  // of `near`, by stays that reach at most into the next step
  for (const Stay& gap : gaps) {
    if (gap.fetch <= gap.gone) continue;
    const std::uint32_t begin = gap.gone % ops, end = begin + (gap.fetch - gap.gone);
    for (std::uint32_t lap = 0; lap * ops < end; ++lap) {
      change[lap == 0 ? begin : 0] -= room_of(gap);
      change[std::min(end - lap * ops, ops)] += room_of(gap);
    }
  }
  std::int64_t away = 0;
  for (std::uint32_t op = 0; op < ops; ++op) near[op] += (away += change[op]);
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
