// Places for memory besides the main one: NUMA nodes as hwloc sees them, GPUs as their driver sees them. The GPU driver
// is loaded at run time, so one binary serves machines with and without.
#pragma once
#include <string>
#include <vector>

#include "os/probe.h"

namespace vedette {

std::vector<NumaNode> find_numa_nodes();
std::vector<Gpu> find_gpus(std::string& refusal);  // refusal: why there are none

}  // namespace vedette
