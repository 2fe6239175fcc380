// AutoTM's integer program over a Ledger, and its solution: apart from the policy, so that a test can hold it against
// brute force. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "policy/autotm/solver.h"
#include "policy/canvas/ledger.h"

namespace vedette::autotm {

// Where a gap's moves may be. Ops count as in planning::Stay.
struct Candidate {
  std::uint32_t gap = 0;
  TierIndex tier{1};
  std::vector<std::uint32_t> out;  // the op beside which the eviction runs; the gap's `after`: it blocks
  std::vector<std::uint32_t> in;   // the op beside which the fetch runs; the gap's `before`: it blocks
};

struct Chosen {
  std::size_t candidate = 0;
  std::uint32_t out = 0, in = 0;
};

struct Solution {
  std::vector<Chosen> chosen;
  double time = 0, bound = 0;  // ns of the step by the program's objective; no better one exists
  bool proven = false;         // within the gap that was asked for
};

constexpr std::uint32_t window = 15;  // ops beside a user in which a move may run, as published

// At most `most` gaps that are idle while memory is over its size, those of most bytes x time first. Each has moves at
// most `window` ops from its users; `positions` of them on each side (0: all).
std::vector<Candidate> candidates(const planning::Ledger& ledger, std::size_t most, std::size_t positions);

// The step's time if those are chosen: blocking moves, and for each op the longer of its time and the moves that run
// beside it.
double objective(const planning::Ledger& ledger, const std::vector<Candidate>& candidates,
                 const std::vector<Chosen>& chosen);
planning::Absence absence(const planning::Ledger& ledger, const Candidate& candidate, const Chosen& chosen);

// Stops within `gap` (a share) of the best. nullopt: none was found within `most_nodes`, or there is no solver.
std::optional<Solution> solve(const planning::Ledger& ledger, const std::vector<Candidate>& candidates, int most_nodes,
                              double gap = 0);

}  // namespace vedette::autotm
