// The ledger's times: when ops begin, how long moves take, and the step that both make.
#include <algorithm>

#include "policy/canvas/ledger.h"

namespace vedette::planning {

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

}  // namespace vedette::planning
