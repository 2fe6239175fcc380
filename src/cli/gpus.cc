// GPUs as a session meets them: their memory, how fast it exchanges bytes with pinned memory of the host, their power.
#include <algorithm>
#include <memory>

#include "cli/diagnosis.h"
#include "cuda/device.h"
#include "cuda/nvml.h"
#include "gpu/link.h"

namespace vedette::cli {
namespace {

constexpr Bytes most_measured = 128_MiB;
constexpr std::uint64_t part_measured = 4;  // of what is free
constexpr std::uint64_t unit = 8192;

Result<double> watts_of(const Result<std::shared_ptr<const cuda::Nvml>>& nvml, const cuda::Device& device) {
  if (!nvml) return nvml.error();
  const auto handle = (*nvml)->device(device.bus_id());
  if (!handle) return handle.error();
  const auto milliwatts = (*nvml)->power_mw(*handle);
  if (!milliwatts) return milliwatts.error();
  return *milliwatts / 1e3;
}

}  // namespace

Result<std::vector<GpuFacts>> examine_gpus() {
  auto driver = cuda::Driver::load();
  if (!driver) return driver.error();
  int count = 0;
  if (auto counted = (*driver)->check((*driver)->calls().device_count(&count), "counting GPUs"); !counted)
    return counted.error();
  const auto nvml = cuda::Nvml::load();
  std::vector<GpuFacts> gpus;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    const auto device = cuda::Device::open(*driver, ordinal);
    if (!device) return device.error();
    const auto memory = (*device)->memory();
    if (!memory) return memory.error();
    const Bytes budget{std::min(most_measured.value, memory->free.value / part_measured) / unit * unit};
    gpus.push_back({.name = (*device)->name(),
                    .free = memory->free,
                    .total = memory->total,
                    .numa_node = (*device)->numa_node(),
                    .link = detail::measure_link(*device, budget),
                    .watts = watts_of(nvml, **device)});
  }
  return gpus;
}

}  // namespace vedette::cli
