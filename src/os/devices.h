// Places for memory besides the main one: NUMA nodes as hwloc sees them. GPUs are src/cuda's.
#pragma once
#include <string_view>
#include <vector>

#include "os/node_memory.h"
#include "os/probe.h"
#include "vedette/result.h"

namespace vedette {

// In the order of their numbers. HWLOC_XMLFILE and hwloc's other variables name another machine's.
std::vector<NumaNode> find_numa_nodes();

// Sets the kind of each.
void find_kinds(std::vector<NumaNode>& nodes);

// The node whose number this is. Error: none, or none that this process may use; a part of a sentence.
Result<NodeIndex> node_named(std::string_view number, const std::vector<NumaNode>& nodes);

}  // namespace vedette
