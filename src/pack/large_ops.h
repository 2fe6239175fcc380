// Ops that need more than fast memory has. No plan can have all their operands there, and one such op must not cost the
// others their plan: to a planner it uses as many operands as fit, the smallest first. The rest comes by faults while
// it runs.
//
// Pure, deterministic. O(operands).
#pragma once
#include <optional>

#include "vedette/model.h"

namespace vedette {

// `units` with ops that fit into `capacity`. nullopt: all fit as they are, or the results of one of them do not.
std::optional<Trace> with_ops_that_fit(const Trace& units, Bytes capacity);

}  // namespace vedette
