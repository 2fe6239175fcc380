// A machine cut in two for the lower bound (bound.cc): tiers 0..j on the near side, the others behind it, and what
// links carry across at most. Pure.
#pragma once
#include <cstdint>

#include "vedette/model.h"

namespace vedette::sim {

struct Cut {
  double capacity = 0, in = 0, out = 0;  // ns a byte; below 0: no link, nothing can cross
  // of `in` and of `out`: what a byte takes of what both ways have together; 0: each has its own
  double part_in = 0, part_out = 0;
};

// Of a machine as it runs (on_its_bus).
Cut cut_behind(const Machine& machine, std::uint32_t near);

}  // namespace vedette::sim
