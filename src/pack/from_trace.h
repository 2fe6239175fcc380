// The lives of a recorded step: the buffers to place when all of it is to fit. Time is the number of the op.
//
// Pure; any thread. O(accesses).
#pragma once
#include <string>
#include <vector>

#include "pack/buffers.h"
#include "vedette/model.h"

namespace vedette::pack {

struct TraceLives {
  Problem problem;              // alignments are 1
  std::vector<std::string> id;  // names of tensors; "workspace of op 7" for what lives inside one op
};

// Persistent tensors live through the whole step; the others from the first op that touches them to the one that frees
// them, or the last that touches them.
TraceLives lives_of(const Trace& trace);

}  // namespace vedette::pack
