// Places for memory besides the main one: NUMA nodes as hwloc sees them. GPUs are src/cuda's.
#pragma once
#include <vector>

#include "os/probe.h"

namespace vedette {

std::vector<NumaNode> find_numa_nodes();

}  // namespace vedette
