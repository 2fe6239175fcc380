// A driver that pages against the clock: the replay of a plan with Plan::paging. Pure.
#pragma once
#include "sim/inputs.h"

namespace vedette::sim {

// As simulate(), for plans with `paging`. The policy hears of ops that begin and of the step's end; its moves are hints
// to the driver.
Result<Replayed> page(const Inputs& in);

}  // namespace vedette::sim
