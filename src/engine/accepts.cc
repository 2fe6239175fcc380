// Which plans chunks can follow.

#include <algorithm>
#include <string>

#include "engine/engine.h"

namespace vedette {
namespace {

constexpr TierIndex fast{0};

Error cannot(const std::string& what) { return {.cause = Cause::unsupported, .message = "memory here cannot " + what}; }

}  // namespace

Result<void> Engine::accepts(const Plan& plan) const {
  for (const InPlace& each : plan.in_place)
    if (!traits_.lends || each.tier != engine::OperandsInPlace::tier)
      return cannot("use an operand where it lies in slow tier " + std::to_string(each.tier.value) +
                    ", which the plan does at op " + std::to_string(each.op.value));
  if (!plan.recomputations.empty())
    return cannot("run an op again, which the plan does before op " +
                  std::to_string(plan.recomputations.front().before.value));
  if (!plan.order.empty()) return cannot("run ops in another order than the program's");
  for (const Move& move : plan.moves) {
    const bool there = std::max(move.source.value, move.target.value) <= slow_.tiers();
    const bool comes = move.verb == Verb::fetch && move.source != fast && move.target == fast;
    const bool leaves = move.verb == Verb::evict && move.source < move.target;
    if (move.verb == Verb::drop ? move.source == fast : there && (comes || leaves)) continue;
    return cannot("move bytes from tier " + std::to_string(move.source.value) + " to tier " +
                  std::to_string(move.target.value) + "; there are fast memory (0) and " +
                  (slow_.tiers() == 1 ? "one slow tier (1)" : "slow tiers 1 to " + std::to_string(slow_.tiers())) +
                  ", and what comes goes to fast memory");
  }
  return {};
}

}  // namespace vedette
