// Which slower tier each stay goes to, where the nearest of them does not hold everything. Pure.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "policy/vedette/sweep.h"

namespace vedette::planning {

// Which of the stays that overflow the nearest slower tier go to the one behind it. Links of both tiers should be busy
// all the time, so stays are dealt between the tiers in the order of their evictions. The best choice differs from one
// stretch of the step to the next; a stretch is an equal part of the bytes that are dealt.
struct TierShares {
  enum class Rule : std::uint8_t {
    in_proportion,  // a constant share of the bytes goes far
    far_keeps_up,   // far as long as the link there is no more than some time behind: near takes the bursts
    longest_first,  // no dealing: the longest stays, until the rest fits; better where most tensors are recomputed
  };
  static constexpr std::size_t stretches = 8;
  Rule rule = Rule::in_proportion;
  std::array<double, stretches> weights{1, 1, 1, 1, 1, 1, 1, 1};  // of the share or the time; 0: all stay near
  bool operator==(const TierShares&) const = default;
};

// Beside the one in proportion. Weights of 0: the nearer tier is left to the first half of evictions.
inline std::array<TierShares, 4> ways_of_dealing() {
  using Rule = TierShares::Rule;
  return {TierShares{.rule = Rule::far_keeps_up}, TierShares{.rule = Rule::longest_first},
          TierShares{.rule = Rule::far_keeps_up, .weights = {0, 0, 0, 0, 1, 1, 1, 1}},
          TierShares{.rule = Rule::in_proportion, .weights = {0, 0, 0, 0, 1, 1, 1, 1}}};
}

struct Spread {
  bool overflows = false;  // the nearer tier would not hold all stays
  bool fits = true;        // it holds what was left to it
};

// Sets Stay::tier: the smallest multiple of the weights is taken as shares with which the nearer tier never overflows.
// O((stays + ops) log stays).
Spread spread_over_tiers(const Trace& trace, const Machine& machine, const Setting& setting, const TierShares& shares,
                         std::vector<Stay>& gaps);

// The far link needs more time: fetches from behind the nearest slower tier are issued one after the other, latest
// first, as early as there is room.
void fetch_far_early(const Trace& trace, const Costs& costs, const Machine& machine, const Setting& setting,
                     std::vector<Stay>& gaps);

}  // namespace vedette::planning
