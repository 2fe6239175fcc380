// The slow tier's bytes op by op, and the moves that can give some back.
#include "policy/vedette/slow_room.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "base/readable.h"
#include "policy/canvas/room.h"
#include "policy/vedette/machines.h"

namespace vedette::planning {
namespace {

class SlowRoom {
 public:
  SlowRoom(const Trace& trace, const Costs& costs, const Machine& machine, const Setting& setting,
           std::vector<Stay>& gaps)
      : trace_(trace),
        costs_(costs),
        budget_(setting.budget),
        capacity_(static_cast<std::int64_t>(machine.tiers[setting.slow.value].capacity.value)),
        ops_(static_cast<std::uint32_t>(trace.ops.size())),
        gaps_(gaps),
        held_(trace.ops.size()),
        starts_(2 * trace.ops.size() + 1) {}

  bool run() {
    hold_all();
    if (std::none_of(held_.begin(), held_.end(), [&](std::int64_t held) { return held > capacity_; })) return true;
    for (std::size_t op = 0; op < 2 * std::size_t{ops_}; ++op)
      starts_[op + 1] = starts_[op] + trace_.ops[op % ops_].time.value;
    find_moves();
    bool fits = true;
    for (std::uint32_t op = 0; op < ops_ && fits; ++op) {
      if (held_[op] <= capacity_) continue;
      go_to(op);
      while (held_[op] > capacity_ && shorten(op)) {
      }
      while (held_[op] > capacity_ && fits) fits = keep_one_near(op);
    }
    std::erase_if(gaps_, [](const Stay& gap) { return gap.fetch <= gap.gone; });
    return fits;
  }

 private:
  static constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();

  // The ops at which the slow tier has room for it: from the eviction's issue until the fetch is due.
  static std::uint32_t begin(const Stay& gap) { return is_home(gap) ? 0 : gap.last_use + gap.later + 1; }
  static std::uint32_t end(const Stay& gap) { return gap.next_use - gap.sooner; }
  std::int64_t bytes(const Stay& gap) const {
    return static_cast<std::int64_t>(trace_.tensors[gap.tensor].bytes.value);
  }
  static bool is_home(const Stay& gap) { return gap.last_use == 0 && gap.gone == 0; }  // no op uses it

  // As add() of all, whatever their length.
  void hold_all() {
    std::vector<std::int64_t> change(std::size_t{ops_} + 1);
    for (const Stay& gap : gaps_) {
      std::uint32_t from = begin(gap), to = std::min(end(gap), from + ops_);
      if (from >= to) continue;
      if (from >= ops_) from -= ops_, to -= ops_;
      change[from] += bytes(gap);
      change[std::min(to, ops_)] -= bytes(gap);
      if (to > ops_) change[0] += bytes(gap), change[to - ops_] -= bytes(gap);
    }
    std::int64_t held = 0;
    for (std::uint32_t op = 0; op < ops_; ++op) held_[op] = held += change[op];
  }

  // When moves are under way, within the step.
  void find_moves() {
    const auto note = [&](std::uint32_t g, std::uint32_t from, std::uint32_t to) {
      if (from >= to) return;
      if (from >= ops_) from -= ops_, to -= ops_;
      moves_.push_back({from, std::min(to, ops_), g});
      if (to > ops_) moves_.push_back({0, std::min(to - ops_, ops_), g});
    };
    for (std::uint32_t g = 0; g < gaps_.size(); ++g) {
      const Stay& gap = gaps_[g];
      if (gap.fetch <= gap.gone || is_home(gap)) continue;
      note(g, begin(gap), gap.gone);
      if (gap.returns) note(g, gap.fetch, end(gap));
    }
    std::stable_sort(moves_.begin(), moves_.end(), [](const Move& a, const Move& b) { return a.from < b.from; });
  }
  void go_to(std::uint32_t op) {
    for (; next_ < moves_.size() && moves_[next_].from <= op; ++next_) under_way_.push_back(next_);
    std::erase_if(under_way_, [&](std::size_t m) { return moves_[m].to <= op; });
  }

  void add(std::uint32_t from, std::uint32_t to, std::int64_t more) {
    if (from >= ops_) from -= ops_, to -= ops_;
    to = std::min(to, from + ops_);
    for (std::uint32_t op = from; op < to; ++op) held_[op < ops_ ? op : op - ops_] += more;
  }

  // `op` counted on so that it is inside [from, to), which may reach into the next step.
  std::optional<std::uint32_t> inside(std::uint32_t from, std::uint32_t to, std::uint32_t op) const {
    for (; op < to; op += ops_)
      if (op >= from) return op;
    return std::nullopt;
  }
  std::int64_t time_between(std::uint32_t from, std::uint32_t to) const {
    const std::uint32_t shift = from / ops_ * ops_;
    return starts_[std::min(to - shift, 2 * ops_)] - starts_[from - shift];
  }

  // Of the moves under way at the op, the one that keeps most time beside its transfer has it before the op, or
  // after it.
  bool shorten(std::uint32_t op) {
    std::int64_t most = least;
    Stay* best = nullptr;
    std::uint32_t later = 0, sooner = 0;
    for (const std::size_t m : under_way_) {
      Stay& gap = gaps_[moves_[m].gap];
      if (gap.fetch <= gap.gone) continue;  // it stays near meanwhile
      if (const auto at = inside(begin(gap), gap.gone, op)) {
        const std::int64_t left = time_between(*at + 1, gap.gone) - costs_.out_ns[gap.tensor];
        if (left > most) most = left, best = &gap, later = *at - gap.last_use, sooner = gap.sooner;
      }
      if (!gap.returns) continue;
      if (const auto at = inside(gap.fetch, end(gap), op)) {
        const std::int64_t left = time_between(gap.fetch, *at) - costs_.in_ns[gap.tensor];
        if (left > most) most = left, best = &gap, later = gap.later, sooner = gap.next_use - *at;
      }
    }
    if (best == nullptr) return false;
    const std::uint32_t from = begin(*best), to = end(*best);
    best->later = later, best->sooner = sooner;
    add(from, begin(*best), -bytes(*best));
    add(end(*best), to, -bytes(*best));
    return true;
  }

  // Of the tensors that are away at the op, one for which fast memory has room: the smallest that is enough, or the
  // largest.
  bool keep_one_near(std::uint32_t op) {
    if (!near_) near_.emplace(near());
    Stay* best = nullptr;
    for (Stay& gap : gaps_) {
      if (gap.fetch <= gap.gone || !inside(begin(gap), end(gap), op) || !has_room_near(gap)) continue;
      const std::int64_t excess = held_[op] - capacity_, now = bytes(gap);
      const bool better =
          best == nullptr || (bytes(*best) < excess ? now > bytes(*best) : now >= excess && now < bytes(*best));
      if (better) best = &gap;
    }
    if (best == nullptr) return false;
    around(*best, [&](std::uint32_t from, std::uint32_t to) { near_->add(from, to, costs_.room[best->tensor]); });
    add(begin(*best), end(*best), -bytes(*best));
    best->fetch = best->gone;
    return true;
  }

  // Bytes of fast memory op by op.
  std::vector<std::int64_t> near() {
    std::vector<std::int64_t> values = costs_.occupied;
    for (const Stay& gap : gaps_) {
      around(gap, [&](std::uint32_t from, std::uint32_t to) {
        for (std::uint32_t op = from; op < to; ++op) values[op] -= costs_.room[gap.tensor];
      });
    }
    return values;
  }
  bool has_room_near(const Stay& gap) const {
    bool fits = true;
    around(gap, [&](std::uint32_t from, std::uint32_t to) {
      fits = fits && near_->most(from, to) + costs_.room[gap.tensor] <= budget_;
    });
    return fits;
  }
  // The ops at which fast memory has no room for it, as at most two runs of a step's ops.
  template <class Visit>
  void around(const Stay& gap, const Visit& visit) const {
    if (gap.fetch <= gap.gone) return;
    const std::uint32_t from = gap.gone % ops_, to = from + (gap.fetch - gap.gone);
    visit(from, std::min(to, ops_));
    if (to > ops_) visit(std::uint32_t{0}, std::min(to - ops_, ops_));
  }

  const Trace& trace_;
  const Costs& costs_;
  const std::int64_t budget_, capacity_;
  const std::uint32_t ops_;
  std::vector<Stay>& gaps_;
  std::vector<std::int64_t> held_;    // [op]: bytes in the slow tier
  std::vector<std::int64_t> starts_;  // [op]: when it begins without stalls, of two steps
  std::optional<Room> near_;
  struct Move {
    std::uint32_t from = 0, to = 0;  // ops
    std::uint32_t gap = 0;
  };
  std::vector<Move> moves_;  // by `from`
  std::size_t next_ = 0;     // of them, the first that begins after the op at hand
  std::vector<std::size_t> under_way_;
};

}  // namespace

bool may_fill(const Trace& trace, const Machine& machine, const Setting& setting) {
  const std::vector<TierIndex> tiers = slower_tiers(machine);
  return !trace.ops.empty() && !tiers.empty() && tiers.back().value == setting.slow.value &&
         machine.tiers[setting.slow.value].capacity.value < bytes_of_all(trace);
}

std::optional<Error> too_much_for_all_tiers(const Trace& trace, const Machine& machine) {
  const std::uint64_t all = peak_bytes(trace).value;
  std::uint64_t held = machine.tiers[0].capacity.value, slow = 0;
  for (const TierIndex tier : slower_tiers(machine)) slow += std::min(all, machine.tiers[tier.value].capacity.value);
  if (machine.can_recompute || held + slow >= all) return std::nullopt;
  return Error{Cause::infeasible, "the step has " + readable_exactly({all}) +
                                      " at once, and fast memory and all below it hold " +
                                      readable_exactly({held + slow}) + "; give the slowest " +
                                      readable_exactly({all - held - slow}) + " more"};
}

bool fit_slow_tier(const Trace& trace, const Costs& costs, const Machine& machine, const Setting& setting,
                   std::vector<Stay>& gaps) {
  return !may_fill(trace, machine, setting) || SlowRoom(trace, costs, machine, setting, gaps).run();
}

}  // namespace vedette::planning
