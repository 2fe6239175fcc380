// Point 7: can the device's energy be read, and at what resolution?
//
// The counter (millijoules since the driver was loaded) is read again and again beside a kernel that computes: a step
// is a change between two reads, an interval the time between two changes.
#include <optional>

#include "gpu_probe/device.h"
#include "gpu_probe/groups.h"
#include "gpu_probe/nvml.h"

namespace vedette::gpu {
namespace {

void poll_energy(const Nvml& nvml, Nvml::DeviceHandle device, double poll_us, Cell& cell) {
  unsigned long long before = 0, now = 0;
  nvml.energy_mj(device, &before);
  std::optional<double> changed;
  for (double at = now_us(), end = at + poll_us; at < end;) {
    nvml.energy_mj(device, &now);
    const double after = now_us();
    cell.sample("read", after - at);
    at = after;
    if (now == before) continue;
    cell.sample("step", static_cast<double>(now - before));
    if (changed) cell.sample("interval", (at - *changed) * 1e-3);
    changed = at;
    before = now;
  }
}

}  // namespace

void measure_energy(const ProbeOptions& options, Recorder& recorder) {
  const Gpu gpu(options.driver);
  const Nvml nvml(options.energy);
  Nvml::DeviceHandle device{};
  nvml.device(gpu.pci_bus_id().c_str(), &device);
  const double poll_us = recorder.quick() ? 3e5 : 4e6;
  recorder.measure(7, "driver", {}, {{"version", ""}}, [&](Cell& cell) {
    char text[96] = "";
    nvml.driver_version(text, sizeof text);
    cell.fact("version", text);
  });
  recorder.measure(7, "energy", {{"device", "busy"}}, {{"read", "us"}, {"step", "mJ"}, {"interval", "ms"}},
                   [&](Cell& cell) {
                     const Busy busy(gpu, poll_us * 1e-3 + 1000);
                     poll_energy(nvml, device, poll_us, cell);
                   });
  recorder.measure(7, "energy", {{"device", "idle"}}, {{"read", "us"}, {"step", "mJ"}, {"interval", "ms"}},
                   [&](Cell& cell) { poll_energy(nvml, device, poll_us, cell); });
  recorder.measure(7, "power", {{"device", "idle"}}, {{"power", "mW"}}, [&](Cell& cell) {
    for (int i = 0; i < recorder.repetitions(21); ++i) {
      unsigned mw = 0;
      nvml.power_mw(device, &mw);
      cell.sample("power", mw);
    }
  });
}

}  // namespace vedette::gpu
