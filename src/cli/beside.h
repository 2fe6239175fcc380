// The cost of transfers beside waiting for them: computation that they slow down, faults, and chunks that are mapped
// anew.
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

// Machine::remap_time: of the thread that shows a chunk or hides it, one of either, while the other processors compute:
// changing the page tables interrupts them, and that thread waits for their answers. The median of 500, some 20 ms.
// Zero: no session could be opened here.
Nanoseconds measure_remap(Bytes chunk);

}  // namespace vedette::cli
