// Large tensors that die within the step, cut into parts that move alone: where an op leaves less room than the next
// one's operand needs, a part of it can come early all the same. Persistent tensors stay whole, because a plan has one
// home for each. Pure.
#pragma once
#include <cstdint>
#include <vector>

#include "vedette/model.h"

namespace vedette::planning {

struct Split {
  Trace trace;                  // each part a tensor of its own, without names; ops name all parts of their operands
  std::vector<Extent> extents;  // of each part, in the tensors of the trace that was split
};

// Parts of `part_bytes`, which is a multiple of the machine's granule; a tensor not larger than one and a half stays
// whole.
Split split(const Trace& trace, std::uint64_t part_bytes);

// The same; where nothing is cut, the ops are taken out of the trace, which keeps its tensors.
Split split_taking_ops(Trace& trace, std::uint64_t part_bytes);

// The size of a part that moves alone: small enough that room for some of it is found beside a large op, large enough
// that there are not too many. In whole granules.
std::uint64_t part_bytes(std::uint64_t budget, std::uint64_t granule);

// The plan for the split trace as a plan for the trace it was made from.
Plan joined(const Trace& trace, const Split& split, const Plan& plan);

}  // namespace vedette::planning
