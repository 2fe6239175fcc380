// Parts of the planner that can be left out, to see what each is worth (bench/plan_ablation). What ships leaves out
// none. Pure.
#pragma once
#include <cstdint>
#include <memory>

#include "policy/vedette_sweep.h"
#include "vedette/policy.h"

namespace vedette::planning {

struct Without {
  bool parts = false;          // tensors move whole
  bool cleaning = false;       // nothing is written out before it has to leave
  bool looking_ahead = false;  // others leave only for what the op at hand needs
  bool issuing_early = false;  // fetches are issued when the sweep did, not as early as room allows
  bool searching =
      false;  // wide plans only: prices and knobs once, with all of the memory; no shares, no going around, no chance
  bool making_again = false;

  Knobs of(Knobs knobs) const {
    if (cleaning) knobs.clean_ahead_ns = -1;
    if (looking_ahead) knobs.horizon_ns = 0;
    return knobs;
  }
};

// vedette, but for that.
std::unique_ptr<Policy> make_vedette_without(const Without& without);

}  // namespace vedette::planning
