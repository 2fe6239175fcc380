// How fast a directory takes and gives back chunks, measured through the very store that training would use.
#pragma once
#include <optional>

#include "tier/link_habits.h"
#include "tier/store.h"
#include "vedette/model.h"
#include "vedette/result.h"

namespace vedette::cli {

struct Measured {
  LinkHabits link;
  Nanoseconds remap_time;                             // cli/beside.h; 0: counts as nothing
  std::optional<Nanoseconds> fault_time;              // cli/beside.h; not measured: default_fault_time
  std::optional<std::uint32_t> interference_percent;  // cli/beside.h; not measured: the machine does not say
  std::uint64_t host_bytes_per_s = 0;                 // cli/host_speed.h; 0: not measured, and no limit
};
// Memory over such a disk, as a session with such chunks would find them. `room`: of the disk; nullopt: not known, and
// as good as no limit.
Machine machine_over(const Measured& measured, Bytes memory, std::optional<Bytes> room, Bytes chunk);

// By transfers of a slot each. About five seconds and 192 MiB of the directory, which are free again afterwards. Error:
// a transfer failed, or no room. register_buffers: as a session does whose memory allows it.
Result<LinkHabits> measure_disk(Store& store, bool register_buffers);

}  // namespace vedette::cli
