// The reasons of each move of a plan: when its unit was used last and is needed next, the time between, and the time
// the link takes. Written into recordings beside the moves, so that a reader need not guess why something left.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "vedette/model.h"

namespace vedette {

struct MoveBasis {
  // the last op before the move that accesses the unit; in the step before, where a step repeats
  std::optional<OpIndex> last_use;
  std::optional<OpIndex> next_use;  // the first one after it
  std::optional<Nanoseconds> gap;   // from the end of the one to the begin of the other, in the profile's op times
  Nanoseconds transfer;             // of the bytes, on the link between the tiers, latency included; 0 for a drop
  Nanoseconds slack;                // from issue to due, in the profile's op times
  std::string reason;               // the same as a sentence
};

// One for each of plan.moves. Moves of unknown tensors or ops get an empty basis. O(accesses + moves log accesses).
std::vector<MoveBasis> explain(const Trace& units, const Machine& machine, const Plan& plan);

}  // namespace vedette
