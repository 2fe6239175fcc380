// How fast a directory takes and gives back chunks, measured through the very store that training would use.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "tier/store.h"
#include "vedette/model.h"
#include "vedette/result.h"

namespace vedette::cli {

struct DiskSpeed {
  std::uint64_t write_bytes_per_s = 0, read_bytes_per_s = 0;
  std::uint64_t both_bytes_per_s = 0;  // written and read, as many bytes each way at once, added up
};

// Memory over such a disk, as a session would find them. `room`: of the disk; nullopt: not known, and as good as no limit.
Machine machine_over(const DiskSpeed& speed, Bytes memory, std::optional<Bytes> room);

// About four seconds and 192 MiB of the directory, which are free again afterwards. Error: a transfer failed, or no room.
// register_buffers: as a session does whose memory allows it.
Result<DiskSpeed> measure_disk(Store& store, bool register_buffers);

}  // namespace vedette::cli
