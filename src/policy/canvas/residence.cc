// The play of an online policy, and how its decisions become absences.
#include "policy/canvas/residence.h"

#include <algorithm>
#include <limits>

namespace vedette::planning {
namespace {

constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

}  // namespace

double OnlineRules::worth(const Residence& residence, std::uint32_t, std::uint32_t tensor) {
  return residence.last_use(tensor);
}

Residence::Residence(Ledger& ledger, OnlineRules& rules)
    : ledger_(ledger),
      rules_(rules),
      now_(ledger.ops()),
      state_(ledger.trace().tensors.size()),
      place_(state_.size(), none),
      worth_(state_.size()),
      gap_before_(state_.size()),
      decided_(ledger.gaps().size()) {
  for (std::uint32_t t = 0; t < state_.size(); ++t) {
    const std::vector<Use>& uses = ledger.uses().tensors[t].uses;
    gap_before_[t].assign(uses.size(), none);
    for (std::uint32_t g = ledger.gaps_of(t).begin; g < ledger.gaps_of(t).end; ++g) {
      if (ledger.gaps()[g].dead) continue;
      const std::uint32_t before = ledger.gaps()[g].before % ledger.ops();
      const auto found = std::lower_bound(uses.begin(), uses.end(), before,
                                          [](const Use& use, std::uint32_t op) { return use.op < op; });
      gap_before_[t][static_cast<std::size_t>(found - uses.begin())] = g;
    }
    if (ledger.trace().tensors[t].persistent && !uses.empty()) {
      state_[t].alive = true;  // away at first
      state_[t].used = state_[t].left = uses.back().op;
    }
  }
}

std::uint32_t Residence::next_use(std::uint32_t tensor) const {
  const std::vector<Use>& uses = ledger_.uses().tensors[tensor].uses;
  const std::uint32_t step = now_ / ledger_.ops(), op = now_ % ledger_.ops();
  const auto found =
      std::upper_bound(uses.begin(), uses.end(), op, [](std::uint32_t at, const Use& use) { return at < use.op; });
  if (found != uses.end()) return step * ledger_.ops() + found->op;
  return ledger_.trace().tensors[tensor].persistent && !uses.empty() ? (step + 1) * ledger_.ops() + uses.front().op
                                                                     : none;
}

bool Residence::finished(std::uint32_t tensor) const {
  const std::vector<Use>& uses = ledger_.uses().tensors[tensor].uses;
  return !ledger_.trace().tensors[tensor].persistent && state_[tensor].used % ledger_.ops() == uses.back().op;
}

void Residence::appear(std::uint32_t tensor) {
  state_[tensor].near = true;
  state_[tensor].came = now_;
  used_ += static_cast<std::int64_t>(ledger_.size(tensor));
  place_[tensor] = static_cast<std::uint32_t>(nearby_.size());
  nearby_.push_back(tensor);
  put_in_order(tensor);
}

// Tensors without a next use go first, without a transfer.
void Residence::put_in_order(std::uint32_t tensor) {
  worth_[tensor] = finished(tensor) ? -std::numeric_limits<double>::infinity() : rules_.worth(*this, now_, tensor);
  in_order_.insert({worth_[tensor], tensor});
  rules_.placed(*this, tensor);
}

void Residence::take_out_of_order(std::uint32_t tensor) {
  in_order_.erase({worth_[tensor], tensor});
  rules_.removed(tensor);
}

void Residence::vanish(std::uint32_t tensor) {
  state_[tensor].near = false;
  used_ -= static_cast<std::int64_t>(ledger_.size(tensor));
  place_[nearby_.back()] = place_[tensor];
  nearby_[place_[tensor]] = nearby_.back();
  nearby_.pop_back();
  place_[tensor] = none;
  take_out_of_order(tensor);
}

bool Residence::fetch(std::uint32_t tensor, std::int64_t spare) {
  State& state = state_[tensor];
  if (!state.alive || state.near || room() - spare < static_cast<std::int64_t>(ledger_.size(tensor))) return false;
  appear(tensor);
  state.ahead = true;
  state.back = std::max(after_op_ ? now_ + 1 : now_, state.left + 1);
  return true;
}

void Residence::leave(std::uint32_t tensor) {
  State& state = state_[tensor];
  if (!state.near || (state.busy && !after_op_)) return;
  vanish(tensor);
  if (state.ahead) {  // it was away for all that the ledger knows: it just does not come back yet
    state.ahead = false;
    return;
  }
  state.left = after_op_ ? now_ : std::max(state.used, now_ - 1);
}

bool Residence::make_room(std::int64_t bytes, double limit) {
  constexpr double infinite = std::numeric_limits<double>::infinity(), far_later = 1e18;
  while (room() < bytes) {
    std::uint32_t victim = none;
    std::pair last_resort{infinite, none};  // of those that are spared
    for (const auto& [worth, t] : in_order_) {
      if (worth >= limit) break;
      if (state_[t].busy) continue;
      if (worth == -infinite || !rules_.spared(now_, t)) {
        victim = t;
        break;
      }
      if (limit == infinite && std::pair(worth + far_later, t) < last_resort) last_resort = {worth + far_later, t};
    }
    if (victim == none) victim = last_resort.second;
    if (victim == none) return false;
    leave(victim);
  }
  return true;
}

bool Residence::bring(std::uint32_t tensor) {
  if (!make_room(static_cast<std::int64_t>(ledger_.size(tensor)), std::numeric_limits<double>::infinity()))
    return false;
  appear(tensor);
  return true;
}

// The decision about the gap that ends now: it was away, or it stayed.
void Residence::record(std::uint32_t tensor, std::uint32_t op) {
  const std::vector<Use>& uses = ledger_.uses().tensors[tensor].uses;
  const auto found =
      std::lower_bound(uses.begin(), uses.end(), op, [](const Use& use, std::uint32_t at) { return use.op < at; });
  const std::uint32_t g = gap_before_[tensor][static_cast<std::size_t>(found - uses.begin())];
  if (g == none) return;
  const State& state = state_[tensor];
  const Gap& gap = ledger_.gaps()[g];
  decided_[g].reset();
  if (state.near && !state.ahead) return;
  const auto relative = [&](std::uint32_t at, std::uint32_t least, std::uint32_t most) {  // as the gap counts ops
    const std::int64_t counted = static_cast<std::int64_t>(gap.before) - (static_cast<std::int64_t>(now_) - at);
    return static_cast<std::uint32_t>(std::clamp<std::int64_t>(counted, least, most));
  };
  Absence made{.leave = relative(state.left, gap.after, gap.before - 2)};
  made.gone = made.leave + 1;
  made.back = state.near ? relative(state.back, made.gone, gap.before) : gap.before;
  if (made.gone < made.back) decided_[g] = made;
}

void Residence::use(std::uint32_t tensor, std::uint32_t op) {
  State& state = state_[tensor];
  if (state.alive) record(tensor, op);
  state.ahead = false;
}

bool Residence::run(std::uint32_t op) {
  const auto operands = ledger_.uses().operands[op];
  for (const std::uint32_t t : operands) state_[t].busy = true;
  rules_.begins(*this, now_);
  for (const std::uint32_t t : operands) {
    if (!state_[t].alive || state_[t].near) continue;
    ++misses_;
    rules_.misses(*this, now_, t);
  }
  const auto workspace = static_cast<std::int64_t>(ledger_.trace().ops[op].workspace.value);
  if (!make_room(workspace, std::numeric_limits<double>::infinity())) return false;
  used_ += workspace;
  for (const std::uint32_t t : operands) {
    use(t, op);
    if (!state_[t].near && !bring(t)) return false;
    state_[t].alive = true;
    state_[t].used = now_;
    take_out_of_order(t);
    put_in_order(t);
    state_[t].left = state_[t].back = 0;
  }
  rules_.ready(*this, now_);
  used_ -= workspace;
  after_op_ = true;
  rules_.ended(*this, now_);
  after_op_ = false;
  for (const std::uint32_t t : operands) state_[t].busy = false;
  for (const std::uint32_t t : ledger_.uses().deaths[op]) {
    if (state_[t].near) vanish(t);
    state_[t] = {};
  }
  return true;
}

bool Residence::play(std::uint32_t steps, Ledger::From from) {
  for (std::uint32_t step = 0; step < steps; ++step) {
    for (std::uint32_t op = 0; op < ledger_.ops(); ++op, ++now_) {
      if (!run(op)) return false;
    }
  }
  for (std::uint32_t g = 0; g < decided_.size(); ++g) {
    if (!decided_[g]) continue;
    const auto tier = ledger_.tier_for(g, decided_[g]->leave, from);
    if (!tier) continue;
    decided_[g]->tier = *tier;
    ledger_.leave(g, *decided_[g]);
  }
  return true;
}

}  // namespace vedette::planning
