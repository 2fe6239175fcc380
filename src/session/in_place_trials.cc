// Sums of losses by kind of op: see in_place_trials.h.
#include "session/in_place_trials.h"

#include <algorithm>
#include <string_view>

namespace vedette::detail {

void InPlaceTrials::used(std::uint32_t part, Nanoseconds moves, Nanoseconds took) {
  Trial& trial = of_parts_[part];
  if (trial.moves != moves) trial = {.moves = moves, .took = took};  // other bytes than before
  trial.took = std::min(trial.took, took);
  ++trial.steps;
}

std::vector<InPlacePrice> InPlaceTrials::prices(std::span<const Op> ops, std::span<const Nanoseconds> near) const {
  struct Sum {
    Nanoseconds moves, lost;
  };
  std::map<std::string_view, Sum> sums;
  for (const auto& [part, trial] : of_parts_) {
    if (part >= ops.size() || trial.steps < enough) continue;
    Sum& sum = sums[ops[part].name];
    sum.moves += trial.moves;
    sum.lost += std::max(Nanoseconds{}, trial.took - near[part]);
  }
  constexpr double least = 5, most = 2000;  // nothing is free, and what seems to cost more is the machine's other work
  std::vector<InPlacePrice> prices;
  for (const auto& [op, sum] : sums) {
    const double percent = 100 * static_cast<double>(sum.lost.value) / static_cast<double>(sum.moves.value);
    prices.push_back({.op = std::string(op), .percent = static_cast<std::uint32_t>(std::clamp(percent, least, most))});
  }
  return prices;
}

bool take_prices(std::span<const InPlacePrice> measured, Machine& machine) {
  const auto differs = [&](const InPlacePrice& price) {
    const std::uint32_t before = machine.in_place_percent(price.op);
    return (std::max(price.percent, before) - std::min(price.percent, before)) * 5 > before;
  };
  if (std::ranges::none_of(measured, differs)) return false;
  for (const InPlacePrice& price : measured) {
    std::erase_if(machine.in_place_prices, [&](const InPlacePrice& old) { return old.op == price.op; });
    machine.in_place_prices.push_back(price);
  }
  std::ranges::sort(machine.in_place_prices, {}, &InPlacePrice::op);
  return true;
}

}  // namespace vedette::detail
