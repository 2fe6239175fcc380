// What kind of device it is, and what it says that it can do: the rows that the others are read by.
#include "gpu_probe/device.h"
#include "gpu_probe/groups.h"

namespace vedette::gpu {

void measure_device(const ProbeOptions& options, Recorder& recorder) {
  const Gpu gpu(options.driver);
  recorder.measure(
      0, "device", {},
      {{"name"}, {"pci_bus_id"}, {"driver_interface"}, {"driver_file"}, {"free_bytes"}, {"compute_capability"}},
      [&](Cell& cell) {
        int version = 0;
        gpu.cuda.driver_version(&version);
        cell.fact("name", gpu.name());
        cell.fact("pci_bus_id", gpu.pci_bus_id());
        cell.fact("driver_interface", std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10));
        cell.fact("driver_file", gpu.cuda.library.path());
        cell.fact("free_bytes", gpu.free_bytes());
        cell.fact("compute_capability", std::to_string(gpu.attribute(Attribute::compute_capability_major)) + "." +
                                            std::to_string(gpu.attribute(Attribute::compute_capability_minor)));
      });
  const std::pair<const char*, Attribute> asked[] = {
      {"multiprocessors", Attribute::multiprocessor_count},
      {"l2_cache_bytes", Attribute::l2_cache_size},
      {"copy_engines", Attribute::async_engine_count},
      {"host_register", Attribute::host_register_supported},
      {"registered_memory_at_host_address", Attribute::can_use_host_pointer_for_registered_memory},
      {"virtual_memory_management", Attribute::virtual_memory_management_supported},
      {"host_frames", Attribute::host_memory_management_supported},
      {"host_numa_frames", Attribute::host_numa_memory_management_supported},
      {"nearest_numa_node", Attribute::host_numa_id},
  };
  // each a cell of its own: an older driver does not know the younger ones
  for (const auto& [name, attribute] : asked) {
    recorder.measure(0, "attribute", {}, {{name}}, [&, name_ = name, attribute_ = attribute](Cell& cell) {
      cell.fact(name_, gpu.attribute(attribute_));
    });
  }
}

}  // namespace vedette::gpu
