// The bound of vedette/bound.h for planners, which want to know soon whether anything is left: it looks at fewer runs
// of ops, and is no higher. Pure.
#pragma once
#include "vedette/model.h"

namespace vedette::sim {

Nanoseconds coarse_bound(const Trace&, const Machine&);

}  // namespace vedette::sim
