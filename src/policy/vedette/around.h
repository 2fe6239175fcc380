// Once around a choice, a decision at a time: what is recomputed, shares of the memory, knobs, and how stays are dealt
// between full tiers. `consider(Choice)` tries one; `best()` returns the best so far. Pure.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "policy/vedette/choice.h"
#include "policy/vedette/recompute.h"
#include "policy/vedette/tiers.h"

namespace vedette::planning {

// The shares of the far tier, stretch by stretch.
template <class Consider, class Best>
void try_shares_of_tiers(Consider consider, Best best) {
  for (const double factor : {0.0, 0.5, 0.8, 1.25, 2.0}) {
    for (std::size_t stretch = 0; stretch < TierShares::stretches; ++stretch) {
      Choice choice = best();
      choice.far.weights[stretch] *= factor;
      if (choice.far.rule != TierShares::Rule::longest_first) consider(choice);
    }
  }
}

// Recomputation pays most where gaps are longest, in the step's first segments: prices end after each of them, and
// differ from one to the next.
template <class Consider, class Best>
void try_segments(Consider consider, Best best) {
  for (std::size_t end = 1; end < RecomputeRule::segments; ++end) {
    Choice choice = best();
    std::fill(choice.rule.ns_per_byte.begin() + static_cast<std::ptrdiff_t>(end), choice.rule.ns_per_byte.end(), 0);
    consider(choice);
  }
  for (const double factor : {0.0, 0.5, 2.0}) {
    for (std::size_t segment = 0; segment < RecomputeRule::segments; ++segment) {
      Choice choice = best();
      if (choice.rule.ns_per_byte[segment] <= 0) continue;
      choice.rule.ns_per_byte[segment] *= factor;
      consider(choice);
    }
  }
}

// A plan for less memory is valid for more: a find with less of it may be better than one with all.
template <class Consider, class Best>
void try_around(std::int64_t step_ns, std::int64_t budget, Consider consider, Best best) {
  const auto consider_with = [&](auto change) {
    Choice choice = best();
    change(choice);
    consider(choice);
  };
  if (recomputes(best().rule)) {
    const bool by_dual = best().rule.shares_at != 0;
    for (const double factor : by_dual ? std::array{0.8, 1.3, 0.9, 1.1} : std::array{0.4, 2.5, 0.7, 1.5})
      consider_with([&](Choice& c) {
        for (double& price : c.rule.ns_per_byte) price *= factor;
      });
    try_segments(consider, best);
    for (const std::uint32_t depth : {2U, 16U}) consider_with([&](Choice& c) { c.rule.depth = depth; });
    for (const std::int64_t part : {16, 32, 64, 256})
      consider_with([&](Choice& c) { c.rule.least_gap_ns = step_ns / part; });
  }
  for (const std::uint32_t share : {100U, 90U, 80U, 70U, 60U}) consider_with([&](Choice& c) { c.share = share; });
  for (const std::int64_t part : {1, 4, 16, 64}) consider_with([&](Choice& c) { c.knobs.horizon_ns = step_ns / part; });
  consider_with([&](Choice& c) { c.knobs.horizon_ns = 0; });
  for (const std::int64_t part : {8, 32, 128, 512})
    consider_with([&](Choice& c) { c.knobs.clean_ahead_ns = step_ns / part; });
  consider_with([&](Choice& c) { c.knobs.clean_ahead_ns = -1; });
  for (const std::uint32_t percent : {100U, 125U, 200U})
    consider_with([&](Choice& c) { c.knobs.clean_percent = percent; });
  for (const std::int64_t part : {50, 12}) consider_with([&](Choice& c) { c.knobs.staging = budget / part; });
}

}  // namespace vedette::planning
