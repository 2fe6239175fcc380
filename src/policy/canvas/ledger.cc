// Gaps, bytes per op, the plan that they make, and traces that cannot run.
#include "policy/canvas/ledger.h"

#include <algorithm>
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
    if (uses.uses.empty()) continue;  // a persistent tensor without uses lives far away
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
  // By issue; at one op fetches start before evictions; among fetches the first needed.
  const auto key = [&](const Move& move) {
    return std::tuple(move.issue, move.verb != Verb::fetch,
                      move.verb == Verb::fetch ? (move.due.value + n_ - move.issue.value) % n_ : 0);
  };
  std::stable_sort(plan.moves.begin(), plan.moves.end(), [&](const Move& a, const Move& b) { return key(a) < key(b); });
  std::stable_sort(plan.recomputations.begin(), plan.recomputations.end(),
                   [](const Recomputation& a, const Recomputation& b) {
                     // the first made is recomputed first
                     return std::tuple(a.before, a.producer) < std::tuple(b.before, b.producer);
                   });
  return plan;
}

void evict_at_last_use(Ledger& ledger) {
  for (std::uint32_t g = 0; g < ledger.gaps().size(); ++g) {
    if (!ledger.absence(g)) continue;
    Absence away = *ledger.absence(g);
    away.leave = ledger.gaps()[g].after;
    away.gone = away.leave + 1;
    if (ledger.tier_for(g, away.leave) == away.tier) ledger.leave(g, away);
  }
}

// ---- refusals ----

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
