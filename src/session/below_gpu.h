// The tiers below a GPU's memory, of SessionOptions::slow. "host:SIZE" is so much pinned memory at most. "host" is at
// most seven eighths of the memory that the machine and the memory cgroup have available when the session opens.
// "host:SIZE+nvme:DIRECTORY" has a file on a disk below it, in which there is room for everything.
//
// Thread rule: any thread in which the device's context is current.
#pragma once
#include <memory>
#include <vector>

#include "cuda/device.h"
#include "gpu/disk_thread.h"
#include "tier/link_habits.h"
#include "vedette/model.h"
#include "vedette/session.h"

namespace vedette::detail {

struct BelowGpu {
  Bytes host;                        // the most pinned memory; 0: without limit, where nothing says what is available
  std::unique_ptr<DiskThread> disk;  // nullptr: there is none
  std::vector<Tier> tiers;           // fastest first
  std::vector<LinkHabits> habits;    // of each, measured
};

// Errors: unsupported for another kind of tier, or a size that is too small; of the directory; of the device.
// `budget`: of the GPU.
Result<BelowGpu> open_below_gpu(const SessionOptions& options, Bytes budget,
                                const std::shared_ptr<const cuda::Device>& device);

}  // namespace vedette::detail
