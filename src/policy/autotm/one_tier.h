// AutoTM's static plan: each tensor lies in one tier for all its life, and ops use in place what lies in slow memory.
// Pure.
#pragma once
#include <optional>
#include <vector>

#include "vedette/model.h"

namespace vedette::autotm {

struct OneTier {
  std::vector<char> far;   // [t]: 1 where the tensor lies in slow memory
  Nanoseconds in_place{};  // of all uses there
  bool proven = false;     // within the gap that was asked for
};

// The choice of least time in place whose rest fits into fast memory at each op. nullopt: the machine has no slow
// memory that ops can use, or workspaces alone do not fit. Solves at most 12 programs, each with a column for a
// tensor.
std::optional<OneTier> one_tier(const Trace& trace, const Machine& machine, int most_nodes, double gap);

Plan plan_of(const Trace& trace, const Machine& machine, const OneTier& chosen);

}  // namespace vedette::autotm
