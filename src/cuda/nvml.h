// Power and energy of GPUs, and how much of one a process takes, by NVML, loaded at run time: a driver may come without
// it.
//
// Source: nvml.h of CUDA 13.5; tests/cuda/layout.cc compares the declarations with it. The energy counter is Volta's
// and later ones'; it counts millijoules since the driver was loaded, all processes together. A loaded library stays
// loaded. Thread rule: any thread.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "vedette/result.h"

namespace vedette::cuda {

class Nvml {
 public:
  using DeviceHandle = struct NvmlDeviceTag*;

  // Errors: unavailable where there is no such file, a function is missing, or nvmlInit refuses.
  static Result<std::shared_ptr<const Nvml>> load(const std::string& file = "libnvidia-ml.so.1");

  Result<DeviceHandle> device(const std::string& bus_id) const;  // as Device::bus_id() tells it
  Result<std::uint64_t> energy_mj(DeviceHandle device) const;
  Result<std::uint32_t> power_mw(DeviceHandle device) const;  // averaged by the device, over a second or less
  struct Process {                                            // nvmlProcessInfo_t
    unsigned pid = 0;
    unsigned long long bytes = 0;  // of the device's memory; all ones: the system does not tell
    unsigned gpu_instance = 0, compute_instance = 0;
  };
  // Of the calling process, the context's included. Unavailable where NVML does not know it by its number here, as in a
  // container with numbers of its own.
  Result<std::uint64_t> bytes_of_this_process(DeviceHandle device) const;

 private:
  Nvml() = default;
  Result<void> check(int error, const char* doing) const;

  const char* (*name_of_error_)(int) = nullptr;
  int (*processes_)(DeviceHandle, unsigned* count, Process* first) = nullptr;  // as CUDA 11's driver and later ones
#define CALL(member, header_name, exported_name, ...) int (*member##_)(__VA_ARGS__) = nullptr;
#include "cuda/nvml_calls.def"
#undef CALL
};

// The energy counter, in millijoules, of the device at `bus_id`, as Device::bus_id() tells it; nullopt: none can be
// read. Its first call loads NVML. Thread rule of the function: any thread, one at a time.
std::function<std::optional<std::uint64_t>()> energy_counter(std::string bus_id);
// The same for bytes_of_this_process().
std::function<std::optional<std::uint64_t>()> process_memory_counter(std::string bus_id);

}  // namespace vedette::cuda
