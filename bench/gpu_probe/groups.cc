// The list of the measurements, in the order in which they run.
#include "gpu_probe/groups.h"

namespace vedette::gpu {

std::vector<Group> driver_groups() {
  return {
      {"machine", 6, 60, "kernel, userfaultfd, io_uring, NUMA, disk", measure_machine},
      {"device", 0, 30, "name and abilities of the device", measure_device},
      {"chunks", 1, 120, "create, map, set access, unmap, release", measure_chunks},
      {"remap_waited", 1, 30, "remap a chunk between two kernels, the host waiting for the first",
       measure_remap_waited},
      {"remap_queued", 1, 60, "remap a chunk between two kernels that are both queued", measure_remap_queued},
      {"host_frames", 2, 60, "host frames in the device's range", measure_host_frames},
      {"copies", 3, 90, "copies between pinned and device memory", measure_copies},
      {"copies_by_node", 3, 40, "the same by NUMA node of the host's memory", measure_copies_by_node},
      {"pinned", 3, 40, "pinned memory allocated in pieces", measure_pinned},
      {"registered", 3, 90, "host memory registered in pieces", measure_registered},
      {"managed", 4, 60, "faults and prefetches of managed memory", measure_managed},
      {"fault_records", 4, 60, "what CUPTI tells about faults", measure_fault_records},
      {"energy", 7, 30, "NVML's energy counter", measure_energy},
  };
}

}  // namespace vedette::gpu
