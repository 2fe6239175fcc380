// The memory of this machine, or of the memory cgroup this process lives in: the whole of which a Fraction is a part.
// Thread rule: any thread; reads /proc and /sys at each call.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "vedette/units.h"

namespace vedette::adapter {

struct MachineMemory {
  Bytes total;      // MemTotal, or the smallest limit of the cgroups above us where that is less
  Bytes available;  // MemAvailable, or what such a limit leaves
};

// `root` is where /proc and /sys lie, "" in earnest; tests have their own.
MachineMemory machine_memory(const std::string& root = "");

// Processes of a torchrun job on this machine, this one among them (LOCAL_WORLD_SIZE); 1 where none says more.
std::uint32_t local_ranks();
// This process among those of a job (RANK, where WORLD_SIZE is above 1); nothing where it is alone.
std::optional<std::uint32_t> rank_of_a_job();

}  // namespace vedette::adapter
