// How fast a GPU and pinned memory of its host exchange bytes.
//
// Thread rule: any thread in which the device's context is current.
#pragma once
#include <memory>

#include "cuda/device.h"
#include "tier/link_habits.h"
#include "vedette/result.h"

namespace vedette::detail {

// Copies of 64 MiB, or of half of `budget` where that is less, one direction at a time and both at once. Each is
// repeated until two in a row agree. Takes `budget` of the device's memory at most, and as much of the host's; some
// 100 ms at 50 GB/s.
Result<LinkHabits> measure_link(const std::shared_ptr<const cuda::Device>& device, Bytes budget);

}  // namespace vedette::detail
