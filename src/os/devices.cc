#include "os/devices.h"

#include <dlfcn.h>
#include <hwloc.h>

#include <memory>

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

std::vector<Gpu> find_gpus(std::string& refusal) {
  struct Close {
    void operator()(void* library) const noexcept { ::dlclose(library); }
  };
  const std::unique_ptr<void, Close> driver(::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL));
  if (!driver) {
    refusal = "no driver (libcuda.so.1)";
    return {};
  }
  // The driver's C interface (cuda.h), as far as it is needed here; 0 is CUDA_SUCCESS.
  const auto init = reinterpret_cast<int (*)(unsigned)>(::dlsym(driver.get(), "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(::dlsym(driver.get(), "cuDeviceGetCount"));
  const auto name = reinterpret_cast<int (*)(char*, int, int)>(::dlsym(driver.get(), "cuDeviceGetName"));
  const auto memory = reinterpret_cast<int (*)(std::size_t*, int)>(::dlsym(driver.get(), "cuDeviceTotalMem_v2"));
  if (init == nullptr || count == nullptr || name == nullptr || memory == nullptr) {
    refusal = "libcuda.so.1 is not a CUDA driver";
    return {};
  }
  if (const int error = init(0); error != 0) {
    refusal = "the driver does not start (cuInit: error " + std::to_string(error) + ")";
    return {};
  }
  std::vector<Gpu> gpus;
  int found = 0;
  if (count(&found) != 0) found = 0;
  for (int device = 0; device < found; ++device) {
    char text[128] = "unnamed";
    std::size_t bytes = 0;
    name(text, sizeof text, device);
    memory(&bytes, device);
    gpus.push_back({.name = text, .memory = {bytes}});
  }
  if (gpus.empty()) refusal = "a driver, but no device";
  return gpus;
}

}  // namespace vedette
