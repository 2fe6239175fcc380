// Gaps, bytes per op, and the plan that they make.
#include "policy/canvas/ledger.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>

#include "base/assert.h"
#include "base/readable.h"

namespace vedette::planning {

Ledger::Ledger(const Trace& trace, const Machine& machine)
    : trace_(trace), machine_(machine), uses_(uses_of(trace)), n_(static_cast<std::uint32_t>(trace.ops.size())) {
  capacity_ = machine.tiers.empty()
                  ? 0
                  : static_cast<std::int64_t>(std::min<std::uint64_t>(machine.tiers[0].capacity.value, INT64_MAX / 4));
  for (const Tensor& tensor : trace.tensors) size_.push_back(rounded(tensor.bytes.value, machine.granule.value));
  std::vector<std::int64_t> change(n_ + 1), load(n_);
  for (std::uint32_t t = 0; t < size_.size(); ++t) {
    const TensorUses& uses = uses_.tensors[t];
    if (uses.uses.empty()) continue;  // a persistent tensor that nobody uses lives far away
    change[uses.persistent ? 0 : uses.birth] += static_cast<std::int64_t>(size_[t]);
    change[uses.persistent ? n_ : uses.death + 1] -= static_cast<std::int64_t>(size_[t]);
  }
  std::int64_t sum = 0;
  for (std::uint32_t i = 0; i < n_; ++i)
    load[i] = (sum += change[i]) + static_cast<std::int64_t>(trace.ops[i].workspace.value);
  near_ = Room(load);
  std::int64_t unused = 0;
  for (std::uint32_t t = 0; t < size_.size(); ++t) {
    if (uses_.tensors[t].uses.empty() && trace.tensors[t].persistent)
      unused += static_cast<std::int64_t>(bytes(t).value);
  }
  for (std::size_t k = 1; k < machine.tiers.size(); ++k)
    far_.emplace_back(std::vector<std::int64_t>(n_, k + 1 == machine.tiers.size() ? unused : 0));
  find_gaps();
}

void Ledger::find_gaps() {
  of_tensor_.resize(size_.size());
  for (std::uint32_t t = 0; t < size_.size(); ++t) {
    const TensorUses& tensor = uses_.tensors[t];
    of_tensor_[t].begin = static_cast<std::uint32_t>(gaps_.size());
    for (std::size_t u = 0; u + 1 < tensor.uses.size(); ++u)
      add_gap(t, tensor.uses[u].op, tensor.uses[u + 1].op, false);
    if (!tensor.uses.empty()) {
      const std::uint32_t last = tensor.uses.back().op;
      if (tensor.persistent) {
        add_gap(t, last, tensor.uses.front().op + n_, false);
      } else {
        add_gap(t, last, tensor.death + 1, true);
      }
    }
    of_tensor_[t].end = static_cast<std::uint32_t>(gaps_.size());
  }
  absences_.resize(gaps_.size());
}

void Ledger::add_gap(std::uint32_t tensor, std::uint32_t after, std::uint32_t before, bool dead) {
  if (before > after + 1) gaps_.push_back({.tensor = tensor, .after = after, .before = before, .dead = dead});
}

std::int64_t Ledger::most(std::uint32_t begin, std::uint32_t end) const {
  if (begin >= end) return 0;
  if (end - begin >= n_) return near_.most(0, n_);
  const std::uint32_t from = begin % n_, to = from + (end - begin);
  return to <= n_ ? near_.most(from, to) : std::max(near_.most(from, n_), near_.most(0, to - n_));
}

std::optional<std::uint32_t> Ledger::last_over(std::uint32_t begin, std::uint32_t end, std::int64_t limit) const {
  while (begin < end) {  // lap by lap, from behind
    const std::uint32_t lap = (end - 1) / n_ * n_, from = std::max(begin, lap);
    if (const auto found = near_.last_above(from - lap, end - lap, limit))
      return lap + static_cast<std::uint32_t>(*found);
    end = from;
  }
  return std::nullopt;
}

void Ledger::occupy(Room& room, std::uint32_t begin, std::uint32_t end, std::int64_t bytes) {
  if (begin >= end) return;
  VEDETTE_ASSERT(end - begin <= n_);
  const std::uint32_t from = begin % n_, to = from + (end - begin);
  room.add(from, std::min(to, n_), bytes);
  if (to > n_) room.add(0, to - n_, bytes);
}

void Ledger::apply(std::uint32_t gap, const Absence& absence, std::int64_t sign) {
  const Gap& where = gaps_[gap];
  const std::uint32_t t = where.tensor;
  const std::uint32_t until = absence.how == Return::recomputed ? absence.back : where.before;
  if (absence.how != Return::fetched)
    return occupy(near_, absence.leave + 1, until, -sign * static_cast<std::int64_t>(size_[t]));
  occupy(near_, absence.gone, absence.back, -sign * static_cast<std::int64_t>(size_[t]));
  occupy(far_[absence.tier.value - 1], absence.leave + 1, where.before,
         sign * static_cast<std::int64_t>(bytes(t).value));
}

void Ledger::leave(std::uint32_t gap, const Absence& absence) {
  const Gap& where = gaps_[gap];
  VEDETTE_ASSERT(where.after <= absence.leave && absence.leave < absence.gone && absence.gone <= absence.back &&
                 absence.back <= where.before);
  stay(gap);
  apply(gap, absence, 1);
  absences_[gap] = absence;
}

void Ledger::stay(std::uint32_t gap) {
  if (absences_[gap]) apply(gap, *absences_[gap], -1);
  absences_[gap].reset();
}

std::vector<TierIndex> Ledger::slow_tiers() const {
  std::vector<TierIndex> found;
  for (std::uint32_t k = 1; k < machine_.tiers.size(); ++k) {
    if (machine_.link({0}, {k}) && machine_.link({k}, {0})) found.push_back({k});
  }
  return found;
}

std::optional<TierIndex> Ledger::tier_for(std::uint32_t gap, std::uint32_t leave, From from) const {
  std::vector<TierIndex> tiers = slow_tiers();
  if (from == From::furthest) std::reverse(tiers.begin(), tiers.end());
  const std::uint32_t begin = leave + 1, end = gaps_[gap].before;
  const std::uint64_t size = bytes(gaps_[gap].tensor).value;
  for (const TierIndex tier : tiers) {
    const Room& room = far_[tier.value - 1];
    const std::uint32_t to = begin % n_ + (end - begin);
    const std::int64_t held =
        to <= n_ ? room.most(begin % n_, to) : std::max(room.most(begin % n_, n_), room.most(0, to - n_));
    if (static_cast<std::uint64_t>(std::max<std::int64_t>(held, 0)) + size <= machine_.tiers[tier.value].capacity.value)
      return tier;
  }
  return std::nullopt;
}

// ---- making it fit ----

namespace {

// Walks the ops of a step and keeps what matters to the one at hand: moves under way, and gaps that could be spent
// away.
class Settler {
 public:
  Settler(Ledger& ledger, const std::function<bool(const Gap&)>& may, bool furthest_first)
      : ledger_(ledger),
        may_(may),
        furthest_first_(furthest_first),
        n_(ledger.ops()),
        opens_(n_),
        closes_(n_ + 1),
        keys_(ledger.gaps().size()) {}

  bool settle() {
    for (std::uint32_t g = 0; g < ledger_.gaps().size(); ++g) {
      if (ledger_.absence(g)) {
        watch(g, ledger_.gaps()[g].after + 1, ledger_.absence(g)->gone);
        if (ledger_.absence(g)->how == Return::fetched) watch(g, ledger_.absence(g)->back, ledger_.gaps()[g].before);
      } else if (!may_ || may_(ledger_.gaps()[g])) {
        watch(g, ledger_.gaps()[g].after + 1, ledger_.gaps()[g].before);
      }
    }
    for (std::uint32_t i = 0; i < n_; ++i) {
      for (const std::uint32_t g : opens_[i]) open_.insert({keys_[g] = key(g, i), g});
      while (!open_.empty() && kind(open_.begin()) == Kind::dead &&
             ledger_.load(i) + waiting_bytes_ > ledger_.capacity())
        free_at(taken(open_), i);
      let_come(i);
      while (ledger_.load(i) > ledger_.capacity()) {
        if (open_.empty()) return false;
        free_at(taken(open_), i);
      }
      for (const std::uint32_t g : closes_[i + 1]) {
        open_.erase({keys_[g], g});
        if (waiting_.erase({keys_[g], g}) > 0) waiting_bytes_ -= bytes(g);
      }
    }
    return true;
  }

 private:
  // Smallest first: dead bytes; fetches that can wait, the least urgent first; evictions; then residents, by the rule.
  enum class Kind : std::uint8_t { dead, coming, leaving, resident };
  using Key = std::tuple<Kind, std::int64_t, std::int64_t>;
  using Order = std::set<std::pair<Key, std::uint32_t>>;
  static Kind kind(Order::const_iterator at) { return std::get<0>(at->first); }
  static std::uint32_t taken(Order& from) {
    const std::uint32_t g = from.begin()->second;
    from.erase(from.begin());
    return g;
  }
  std::int64_t bytes(std::uint32_t g) const {
    return static_cast<std::int64_t>(ledger_.size(ledger_.gaps()[g].tensor));
  }

  // Of all fetches that could have come by this op, those that are needed soonest come, as many as there is room for.
  // The others wait: they are away until their uses, as far as the ledger knows, so that an op costs what changes and
  // not what waits.
  void let_come(std::uint32_t op) {
    const auto comes_first = [&] { return !open_.empty() && kind(open_.begin()) == Kind::coming; };
    const auto all_wait_till_it_fits = [&] {
      while (comes_first() && ledger_.load(op) > ledger_.capacity()) wait(taken(open_), op);
    };
    all_wait_till_it_fits();
    while (!waiting_.empty()) {
      const auto soonest = std::prev(waiting_.end());
      const bool before_another = comes_first() && *open_.begin() < *soonest;
      if (!before_another && ledger_.load(op) + bytes(soonest->second) > ledger_.capacity()) return;
      const std::uint32_t g = soonest->second;
      come(g, op);
      open_.insert(waiting_.extract(soonest));
      waiting_bytes_ -= bytes(g);
      all_wait_till_it_fits();
    }
  }

  void come(std::uint32_t g, std::uint32_t op) {
    Absence changed = *ledger_.absence(g);
    const Gap& gap = ledger_.gaps()[g];
    changed.back = gap.after > op ? op + n_ : op;
    ledger_.leave(g, changed);
  }

  // From this op on, until let_come() ends that or its use or the step does.
  void wait(std::uint32_t g, std::uint32_t op) {
    Absence changed = *ledger_.absence(g);
    const Gap& gap = ledger_.gaps()[g];
    changed.back = gap.after > op ? gap.before : std::min(gap.before, n_);
    ledger_.leave(g, changed);
    waiting_.insert({keys_[g], g});
    waiting_bytes_ += bytes(g);
  }

  Key key(std::uint32_t g, std::uint32_t op) const {
    const Gap& gap = ledger_.gaps()[g];
    const std::int64_t before = static_cast<std::int64_t>(gap.before) - (gap.after > op ? n_ : 0),
                       after = static_cast<std::int64_t>(gap.after) - (gap.after > op ? n_ : 0);
    const auto size = static_cast<std::int64_t>(ledger_.size(gap.tensor));
    if (const auto& absence = ledger_.absence(g)) {
      const bool coming = absence->how == Return::fetched && in(op, absence->back, gap.before);
      return coming ? Key{Kind::coming, -before, -size} : Key{Kind::leaving, after, -size};
    }
    if (gap.dead) return {Kind::dead, 0, -size};
    return furthest_first_ ? Key{Kind::resident, -before, -size} : Key{Kind::resident, after, -size};
  }

  bool in(std::uint32_t op, std::uint32_t begin, std::uint32_t end) const {
    return (op >= begin && op < end) || (op + n_ >= begin && op + n_ < end);
  }

  void watch(std::uint32_t g, std::uint32_t begin, std::uint32_t end) {
    if (begin >= end) return;
    if (begin < n_) {
      opens_[begin].push_back(g);
      closes_[std::min(end, n_)].push_back(g);
    }
    if (end > n_) {
      opens_[begin < n_ ? 0 : begin - n_].push_back(g);
      closes_[end - n_].push_back(g);
    }
  }

  void free_at(std::uint32_t g, std::uint32_t op) {
    const Gap& gap = ledger_.gaps()[g];
    if (ledger_.absence(g)) {
      Absence changed = *ledger_.absence(g);
      const std::uint32_t gone_now = in_this_lap(op, gap.after + 1, changed.gone);
      if (gone_now != none && hurry(g, changed, gone_now)) ledger_.leave(g, changed);
      return;
    }
    Absence made = ledger_.shortest(g);
    if (gap.dead) {
      made.how = Return::never;
      made.tier = {static_cast<std::uint32_t>(ledger_.machine().tiers.size() - 1)};
    } else if (const auto tier = ledger_.tier_for(g, made.leave)) {
      made.tier = *tier;
    } else {
      return;  // no slower tier has room for it
    }
    ledger_.leave(g, made);
  }

  // Out before op `gone`. An earlier eviction occupies the slower tier for longer, so it may have to be another one.
  // False: none has room.
  bool hurry(std::uint32_t g, Absence& changed, std::uint32_t gone) {
    changed.gone = gone;
    if (gone > changed.leave) return true;
    changed.leave = gone - 1;
    if (changed.how != Return::fetched) return true;
    const Absence before = *ledger_.absence(g);
    ledger_.stay(g);
    const auto tier = ledger_.tier_for(g, changed.leave);
    if (tier) changed.tier = *tier;
    if (!tier) ledger_.leave(g, before);
    return tier.has_value();
  }

  // `op` as counted by the absence, if [begin, end) holds it.
  static constexpr std::uint32_t none = ~0U;
  std::uint32_t in_this_lap(std::uint32_t op, std::uint32_t begin, std::uint32_t end) const {
    if (op >= begin && op < end) return op;
    return op + n_ >= begin && op + n_ < end ? op + n_ : none;
  }

  Ledger& ledger_;
  const std::function<bool(const Gap&)>& may_;
  bool furthest_first_;
  std::uint32_t n_;
  std::vector<std::vector<std::uint32_t>> opens_, closes_;
  std::vector<Key> keys_;  // of each gap, when it was put into open_
  Order open_, waiting_;   // what could be freed; fetches that were
  std::int64_t waiting_bytes_ = 0;
};

}  // namespace

bool Ledger::settle(const std::function<bool(const Gap&)>& may, bool furthest_first) {
  return Settler(*this, may, furthest_first).settle();
}

// ---- the plan ----

Plan Ledger::write() const {
  Plan plan{.home = std::vector<TierIndex>(size_.size())};
  const TierIndex last{machine_.tiers.empty() ? 0 : static_cast<std::uint32_t>(machine_.tiers.size() - 1)};
  for (std::uint32_t t = 0; t < size_.size(); ++t) {
    if (trace_.tensors[t].persistent && uses_.tensors[t].uses.empty()) plan.home[t] = last;
  }
  const auto op = [&](std::uint32_t at) { return OpIndex{at % n_}; };
  for (std::uint32_t g = 0; g < gaps_.size(); ++g) {
    if (!absences_[g]) continue;
    const Gap& gap = gaps_[g];
    const Absence& absence = *absences_[g];
    const Extent whole{.tensor = {gap.tensor}, .part = std::nullopt};
    if (absence.how != Return::fetched) {
      plan.moves.push_back({.issue = op(absence.leave),
                            .due = op(absence.gone),
                            .extent = whole,
                            .source = {0},
                            .target = last,
                            .verb = Verb::drop});
      if (absence.how == Return::recomputed)
        plan.recomputations.push_back(
            {.before = op(absence.back), .producer = {absence.producer}, .tensor = {gap.tensor}});
      continue;
    }
    plan.moves.push_back({.issue = op(absence.leave),
                          .due = op(absence.gone),
                          .extent = whole,
                          .source = {0},
                          .target = absence.tier,
                          .verb = Verb::evict});
    plan.moves.push_back({.issue = op(absence.back),
                          .due = op(gap.before),
                          .extent = whole,
                          .source = absence.tier,
                          .target = {0},
                          .verb = Verb::fetch});
    const bool left = absence.leave < n_ && absence.gone <= n_, returned = absence.back < n_ && gap.before <= n_;
    if (gap.before >= n_ && left && !returned) plan.home[gap.tensor] = absence.tier;
  }
  // By issue; at one op fetches start before evictions; among fetches what is needed first.
  const auto key = [&](const Move& move) {
    return std::tuple(move.issue, move.verb != Verb::fetch,
                      move.verb == Verb::fetch ? (move.due.value + n_ - move.issue.value) % n_ : 0);
  };
  std::stable_sort(plan.moves.begin(), plan.moves.end(), [&](const Move& a, const Move& b) { return key(a) < key(b); });
  std::stable_sort(plan.recomputations.begin(), plan.recomputations.end(),
                   [](const Recomputation& a, const Recomputation& b) {
                     // what was made first is recomputed first
                     return std::tuple(a.before, a.producer) < std::tuple(b.before, b.producer);
                   });
  return plan;
}

// ---- time ----

Clock::Clock(const Trace& trace) : n_(static_cast<std::uint32_t>(trace.ops.size())), starts_(trace.ops.size() + 1) {
  for (std::size_t i = 0; i < trace.ops.size(); ++i) starts_[i + 1] = starts_[i] + trace.ops[i].time.value;
}

std::uint32_t Clock::first_at_or_after(std::int64_t time) const {
  if (step() <= 0 || time <= 0) return 0;
  const auto laps = static_cast<std::uint32_t>(time / step());
  const auto found = std::lower_bound(starts_.begin(), starts_.end(), time % step());
  return laps * n_ + static_cast<std::uint32_t>(found - starts_.begin());
}

std::uint32_t Clock::last_at_or_before(std::int64_t time) const {
  if (step() <= 0 || time <= 0) return 0;
  const auto laps = static_cast<std::uint32_t>(time / step());
  const auto found = std::upper_bound(starts_.begin(), starts_.end(), time % step());
  return laps * n_ + static_cast<std::uint32_t>(found - starts_.begin()) - 1;
}

std::int64_t move_time(const Machine& machine, TierIndex source, TierIndex target, Bytes bytes) {
  const Link* link = machine.link(source, target);
  return link == nullptr ? 0 : (link->latency + transfer_time(bytes, link->bytes_per_s)).value;
}

void queue_evictions(Ledger& ledger) {
  const Clock clock(ledger.trace());
  std::vector<std::uint32_t> leaving;
  for (std::uint32_t g = 0; g < ledger.gaps().size(); ++g) {
    if (ledger.absence(g) && ledger.absence(g)->how == Return::fetched) leaving.push_back(g);
  }
  std::stable_sort(leaving.begin(), leaving.end(), [&](std::uint32_t a, std::uint32_t b) {
    return ledger.absence(a)->leave < ledger.absence(b)->leave;
  });
  std::vector<std::int64_t> idle(ledger.machine().tiers.size());
  for (const std::uint32_t g : leaving) {
    Absence changed = *ledger.absence(g);
    std::int64_t& free_at = idle[changed.tier.value];
    free_at = std::max(free_at, clock.at(changed.leave + 1)) +
              move_time(ledger.machine(), {0}, changed.tier, ledger.bytes(ledger.gaps()[g].tensor));
    changed.gone = std::clamp(clock.first_at_or_after(free_at), changed.leave + 1,
                              std::min(changed.back - 1, changed.leave + ledger.ops() - 1));
    ledger.leave(g, changed);
  }
}

std::int64_t predicted_time(const Ledger& ledger) {
  struct Transfer {
    std::uint32_t at, gap;
    bool out;
  };
  std::vector<Transfer> moves;
  for (std::uint32_t g = 0; g < ledger.gaps().size(); ++g) {
    const auto& absence = ledger.absence(g);
    if (!absence || absence->how != Return::fetched) continue;
    moves.push_back({absence->leave + 1, g, true});
    moves.push_back({absence->back, g, false});
  }
  const std::uint32_t n = ledger.ops();
  std::vector<std::vector<Transfer>> of_op(n);
  for (const Transfer& move : moves) of_op[move.at % n].push_back(move);
  std::vector<std::int64_t> in(ledger.machine().tiers.size()), out(in), gone(ledger.gaps().size()), due(2 * n);
  std::int64_t now = 0, began = 0;
  for (std::uint32_t i = 0; i < 2 * n; ++i) {
    if (i == n) began = now;
    for (const Transfer& move : of_op[i % n]) {
      const Absence& absence = *ledger.absence(move.gap);
      const Gap& gap = ledger.gaps()[move.gap];
      const TierIndex tier = absence.tier;
      if (move.out) {
        gone[move.gap] = out[tier.value] =
            std::max(out[tier.value], now) + move_time(ledger.machine(), {0}, tier, ledger.bytes(gap.tensor));
        continue;
      }
      in[tier.value] = std::max({in[tier.value], now, gone[move.gap]}) +
                       move_time(ledger.machine(), tier, {0}, ledger.bytes(gap.tensor));
      const std::uint32_t when = i + (gap.before - absence.back);
      if (when < 2 * n) due[when] = std::max(due[when], in[tier.value]);
    }
    now = std::max(now, due[i]) + ledger.trace().ops[i % n].time.value;
  }
  return now - began;
}

// ---- what cannot be ----

Bytes smallest_size(Machine machine, Bytes most, const std::function<bool(const Machine&)>& works) {
  std::uint64_t low = machine.tiers[0].capacity.value, high = most.value;
  while (high > low && high - low > high / 1024 + 1) {
    machine.tiers[0].capacity = {low + (high - low) / 2};
    (works(machine) ? high : low) = machine.tiers[0].capacity.value;
  }
  return {high};
}

Bytes least_capacity(const Ledger& ledger, const std::function<bool(std::uint32_t)>& kept) {
  std::vector<std::int64_t> change(ledger.ops() + 1);
  std::vector<bool> stays(ledger.trace().tensors.size());
  for (std::uint32_t t = 0; t < stays.size(); ++t) {
    const TensorUses& tensor = ledger.uses().tensors[t];
    stays[t] = kept && !tensor.uses.empty() && kept(t);
    if (!stays[t]) continue;
    change[tensor.persistent ? 0 : tensor.birth] += static_cast<std::int64_t>(ledger.size(t));
    change[tensor.persistent ? ledger.ops() : tensor.death + 1] -= static_cast<std::int64_t>(ledger.size(t));
  }
  std::uint64_t most = 0, living = 0;
  for (std::uint32_t i = 0; i < ledger.ops(); ++i) {
    living += static_cast<std::uint64_t>(change[i]);
    std::uint64_t sum = living + ledger.trace().ops[i].workspace.value;
    for (const std::uint32_t t : ledger.uses().operands[i]) sum += stays[t] ? 0 : ledger.size(t);
    most = std::max(most, sum);
  }
  return {most};
}

Error too_small(const Ledger& ledger, Bytes least, std::string_view why) {
  return {.cause = Cause::infeasible,
          .message = std::string(why) + ", and fast memory has " +
                     readable_exactly(ledger.machine().tiers[0].capacity) + "; the smallest workable size is " +
                     readable_exactly(least)};
}

Error no_room(const Ledger& ledger) {
  return too_small(ledger, peak_bytes(ledger.trace()), "the slower tiers have no room for what must leave");
}

std::optional<Error> refusal(const Ledger& ledger) {
  const Machine& machine = ledger.machine();
  if (machine.tiers.empty()) return Error{.cause = Cause::malformed_input, .message = "the machine has no tier"};
  const Bytes least = least_capacity(ledger);
  if (least > machine.tiers[0].capacity)
    return too_small(ledger, least, "one op needs " + readable_exactly(least) + " at once");
  if (ledger.slow_tiers().empty() && !ledger.fits())
    return too_small(ledger, peak_bytes(ledger.trace()), "no slower tier is linked to fast memory both ways");
  return std::nullopt;
}

}  // namespace vedette::planning
