// NUMA nodes as a session meets them: their kinds, what firmware says of their speed and what was measured, and what
// would move pages between them.
//
// Thread rule: one thread.
#pragma once
#include <cstdint>
#include <vector>

#include "os/node_memory.h"
#include "os/page_movers.h"
#include "os/probe.h"

namespace vedette::cli {

// Of one node, seen from the first that has processors: copies by all processors that this process may use, each with
// 8 MiB or more, and loads that wait for each other.
struct NodeSpeed {
  NodeIndex node;
  std::uint64_t to = 0, from = 0;  // bytes a second; of the first node itself: within it
  Nanoseconds latency, latency_beside_copies;
};

struct NodeFacts {
  std::vector<NodeSpeed> speeds;  // empty: not measured
  PageMovers movers;
};

// Where there are several, it takes about half a second a node and at most 64 MiB of each to measure them; one that has
// no room for it is left out.
NodeFacts examine_nodes(const std::vector<NumaNode>& nodes);

}  // namespace vedette::cli
