// Lanes. Yu and Chowdhury, "Salus: Fine-Grained GPU Sharing Primitives for Deep Learning Applications", MLSys 2020,
// section 3.3 (the safety condition and the assignment of lanes) and 3.2 (turns of one iteration).
//
// Memory of a job is persistent (P) or ephemeral (E). All P stay; a lane is as large as the largest E of its jobs,
// which take turns there, one iteration at a time, so that switching moves nothing. Safe: sum of P + sum of lanes <= C.
// Kept: the three ways of finding a lane, in their order. A job that finds none waits, and later ones may pass it, as
// in the published program. Changed: the largest E counts, where the program takes a running mean of it. Pure; any
// thread.
#pragma once
#include <span>
#include <vector>

#include "share/decide.h"

namespace vedette::share {

// Gives lanes to jobs that have none, and turns in each lane. A lane opens with its first job, grows with a larger one,
// shrinks when the largest leaves and closes with the last.
std::vector<Grant> by_lanes(const Policy& policy, std::span<const Job> jobs, Bytes capacity);

}  // namespace vedette::share
