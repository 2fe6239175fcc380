// The cost of transfers beside waiting for them: computation that they slow down, and faults.
#pragma once
#include <cstdint>
#include <optional>

#include "tier/store.h"
#include "vedette/result.h"
#include "vedette/units.h"

namespace vedette::cli {

// Machine::interference_percent: all processors go through memory, alone and beside transfers both ways, three times
// alternating; of the median loss. Some 1.5 s and 96 MiB of the directory. Error: a transfer failed, or no room.
Result<std::uint32_t> measure_interference(Store& store);

// Machine::fault_time: chunks in turn, each away when it is touched, through a session over plain memory; less the
// copies, which a transfer would be. nullopt: no session could be opened here. Takes 80 chunks of memory.
std::optional<Nanoseconds> measure_fault(Bytes chunk);

}  // namespace vedette::cli
