// A planner of whole tensors made one of runs of pages. Where a trace says which pages each op touched, a tensor whose
// pages are not all used alike (the hot rows of an embedding) is planned as several, and they move alone. Sentinel does
// so below the framework, page by page (HPCA'21, section 2); here neighbours that the same ops use in the same way stay
// together.
//
// Runs of a persistent tensor share its home, which is the slow tier as soon as they would differ. Those that the
// planner left in fast memory all through the step are then fetched when it begins and leave when it ends. Untouched
// pages never move.
#pragma once
#include <memory>

#include "vedette/policy.h"

namespace vedette {

// `planner`'s answers where the trace has no page accesses.
std::unique_ptr<Policy> by_pages(std::unique_ptr<Policy> planner);

}  // namespace vedette
