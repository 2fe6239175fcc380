// Chains of producers, from tensors that are near to the wanted one.
#include "policy/canvas/recompute.h"

#include <algorithm>
#include <tuple>

#include "model/producers.h"

namespace vedette::planning {

struct Recompute::Making {
  std::uint32_t op;  // before which it is made, inside the step
  Chain chain;
};

Recompute::Recompute(Ledger& ledger)
    : ledger_(ledger),
      possible_(ledger.machine().can_recompute),
      pinned_(ledger.gaps().size()),
      writes_(ledger.trace().tensors.size()) {
  for (std::size_t t = 0; t < writes_.size(); ++t) {
    for (const Use& use : ledger.uses().tensors[t].uses) {
      if (use.write) writes_[t].push_back(use.op);
    }
  }
  if (!possible_) return;
  producers_ = vedette::producers(ledger.trace());
  for (const Op& op : producers_) replayable_.push_back(replayable(op));
}

// The last op before `before` that writes the tensor.
std::optional<std::uint32_t> Recompute::writer(std::uint32_t tensor, std::uint32_t before) const {
  const auto next = std::lower_bound(writes_[tensor].begin(), writes_[tensor].end(), before);
  return next == writes_[tensor].begin() ? std::nullopt : std::optional(*std::prev(next));
}

std::optional<std::uint32_t> Recompute::producer(std::uint32_t gap) const {
  const Gap& where = ledger_.gaps()[gap];
  if (!possible_ || where.dead || where.before >= ledger_.ops() || ledger_.trace().tensors[where.tensor].persistent)
    return std::nullopt;
  const std::optional<std::uint32_t> found = writer(where.tensor, where.before);
  return found && replayable_[*found] ? found : std::nullopt;
}

std::optional<Chain> Recompute::chain(std::uint32_t gap) const {
  const Gap& where = ledger_.gaps()[gap];
  const std::optional<std::uint32_t> made_by = producer(gap);
  Making making{.op = where.before};
  if (!made_by || !add(making, where.tensor, *made_by)) return std::nullopt;
  std::sort(making.chain.means.begin(), making.chain.means.end(), [](const Recomputation& a, const Recomputation& b) {
    return std::tuple(a.producer, a.tensor) < std::tuple(b.producer, b.tensor);
  });
  return making.chain;
}

bool Recompute::add(Making& making, std::uint32_t tensor, std::uint32_t producer) const {
  constexpr std::size_t most_producers = 64;
  std::vector<Recomputation>& means = making.chain.means;
  bool ran = false;
  for (const Recomputation& each : means) {
    if (each.producer.value != producer) continue;
    if (each.tensor.value == tensor) return true;
    ran = true;
  }
  if (means.size() >= most_producers || !replayable_[producer]) return false;
  means.push_back({.before = {making.op}, .producer = {producer}, .tensor = {tensor}});
  if (ran) return true;
  const Op& op = producers_[producer];
  making.chain.time += op.time.value;
  making.chain.bytes += static_cast<std::int64_t>(op.workspace.value);
  for (const TensorIndex t : op.writes)
    making.chain.bytes += t.value == tensor ? 0 : static_cast<std::int64_t>(ledger_.size(t.value));
  return std::all_of(op.reads.begin(), op.reads.end(),
                     [&](TensorIndex t) { return source(making, t.value, producer); });
}

bool Recompute::source(Making& making, std::uint32_t tensor, std::uint32_t producer) const {
  const TensorUses& uses = ledger_.uses().tensors[tensor];
  const std::optional<std::uint32_t> version = writer(tensor, producer);
  if (version != writer(tensor, making.op)) return false;
  if (!uses.persistent && uses.death < making.op) {
    making.chain.bytes += static_cast<std::int64_t>(ledger_.size(tensor));
    return version && add(making, tensor, *version);
  }
  for (std::uint32_t g = ledger_.gaps_of(tensor).begin; g < ledger_.gaps_of(tensor).end; ++g) {
    const Gap& gap = ledger_.gaps()[g];
    const std::uint32_t at = making.op <= gap.after ? making.op + ledger_.ops() : making.op;
    if (at <= gap.after || at >= gap.before) continue;
    const std::optional<Absence>& absence = ledger_.absence(g);
    if (!absence) {
      making.chain.pinned.push_back(g);
    } else if (absence->how != Return::recomputed) {
      return false;
    } else if (absence->back > at) {
      making.chain.sooner.push_back(g);
      return version && absence->leave + 1 < at && add(making, tensor, *version);
    }
  }
  return true;
}

void Recompute::drop(std::uint32_t gap, const Chain& chain) {
  const Gap& where = ledger_.gaps()[gap];
  Absence away = ledger_.shortest(gap);
  away.how = Return::recomputed;
  away.producer = *writer(where.tensor, where.before);
  ledger_.leave(gap, away);
  for (const std::uint32_t g : chain.sooner) {
    Absence earlier = *ledger_.absence(g);
    earlier.back = where.before;
    ledger_.leave(g, earlier);
  }
  for (const std::uint32_t g : chain.pinned) pinned_[g] = true;
  for (const Recomputation& each : chain.means) {
    const TensorUses& uses = ledger_.uses().tensors[each.tensor.value];
    if (uses.death < where.before) means_.push_back(each);
  }
  ledger_.burden(where.before, chain.bytes);
}

Plan Recompute::write() const {
  Plan plan = ledger_.write();
  plan.recomputations.insert(plan.recomputations.end(), means_.begin(), means_.end());
  const auto key = [](const Recomputation& each) { return std::tuple(each.before, each.producer, each.tensor); };
  std::sort(plan.recomputations.begin(), plan.recomputations.end(),
            [&](const auto& a, const auto& b) { return key(a) < key(b); });
  plan.recomputations.erase(std::unique(plan.recomputations.begin(), plan.recomputations.end()),
                            plan.recomputations.end());
  return plan;
}

}  // namespace vedette::planning
