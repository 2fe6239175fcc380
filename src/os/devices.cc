#include "os/devices.h"

#include <hwloc.h>

namespace vedette {

std::vector<NumaNode> find_numa_nodes() {
  std::vector<NumaNode> nodes;
  hwloc_topology_t topology = nullptr;
  if (::hwloc_topology_init(&topology) != 0) return nodes;
  ::hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
  if (::hwloc_topology_load(topology) == 0) {
    for (hwloc_obj_t node = nullptr;
         (node = ::hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
      const int processors = node->cpuset == nullptr ? 0 : ::hwloc_bitmap_weight(node->cpuset);
      nodes.push_back({.number = node->os_index,
                       .processors = processors > 0 ? static_cast<std::uint32_t>(processors) : 0,
                       .memory = {node->attr->numanode.local_memory}});
    }
  }
  ::hwloc_topology_destroy(topology);
  return nodes;
}

}  // namespace vedette
