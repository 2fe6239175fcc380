// How fast a directory takes and gives back chunks, measured through the very store that training would use.
#pragma once
#include <optional>
#include <string>

#include "tier/link_speed.h"
#include "tier/store.h"
#include "vedette/model.h"
#include "vedette/result.h"

namespace vedette::cli {

// Memory over such a disk, as a session with such chunks would find them. `room`: of the disk; nullopt: not known, and
// as good as no limit.
Machine machine_over(const LinkSpeed& speed, Bytes memory, std::optional<Bytes> room, Bytes chunk,
                     Nanoseconds remap_time);

// By transfers of a slot each. About four seconds and 192 MiB of the directory, which are free again afterwards. Error:
// a transfer failed, or no room. register_buffers: as a session does whose memory allows it.
Result<LinkSpeed> measure_disk(Store& store, bool register_buffers);

}  // namespace vedette::cli
