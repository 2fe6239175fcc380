// Parts of the planner that can be switched off, to measure the worth of each (bench/plan_ablation). The policy
// `vedette` has all of them. Pure.
#pragma once
#include <cstdint>
#include <memory>

#include "policy/vedette/sweep.h"
#include "vedette/policy.h"

namespace vedette::planning {

struct Features {
  bool parts = true;          // large tensors are cut into parts that move alone
  bool cleaning = true;       // changed tensors are written out before their room is needed
  bool looking_ahead = true;  // tensors also leave for operands of later ops, not only of the op at hand
  bool issuing_early = true;  // fetches are issued as early as room allows, not only when the sweep issues them
  bool searching = true;      // shares of the memory, rounds around the best choice and random changes are tried
  bool covering = true;       // stays are also chosen as a cover
  bool recomputing = true;    // tensors may be dropped and recomputed

  Knobs of(Knobs knobs) const {
    if (!cleaning) knobs.clean_ahead_ns = -1;
    if (!looking_ahead) knobs.horizon_ns = 0;
    return knobs;
  }
};

// The policy `vedette` with these features.
std::unique_ptr<Policy> make_vedette_with(const Features& features);

}  // namespace vedette::planning
