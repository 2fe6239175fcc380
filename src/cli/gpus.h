// GPUs as a session meets them: their memory, how fast it exchanges bytes with pinned memory of the host, their power.
// Asked of CUDA's driver and of NVML, which are loaded at run time; everything is given back.
//
// Thread rule: one thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tier/link_habits.h"
#include "vedette/result.h"
#include "vedette/units.h"

namespace vedette::cli {

struct GpuFacts {
  std::string name;
  Bytes free, total;
  std::optional<int> numa_node;  // the nearest one
  Result<LinkHabits> link;       // measured; an error where memory cannot be pinned, or copies are refused
  Result<double> watts;          // of the whole GPU, now
};

// One entry a GPU, in the driver's order. Errors: no driver, no GPU, or a driver that refuses. Takes half a second
// each.
Result<std::vector<GpuFacts>> examine_gpus();

}  // namespace vedette::cli
