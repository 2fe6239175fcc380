// The functions of NVML that the probe calls, loaded at run time.
//
// Source: nvml.h of CUDA 13.5: nvmlDeviceGetTotalEnergyConsumption(device, unsigned long long* mJ), Volta and later;
// nvmlDeviceGetPowerUsage(device, unsigned* mW); every function answers 0 or the number of an error.
// tests/bench/gpu_layout.cc compares these declarations with the header.
#pragma once
#include <string>

#include "gpu_probe/library.h"

namespace vedette::gpu {

inline std::string nvml_error_name(const Library& library, int error) {
  using ErrorString = const char* (*)(int);
  const auto get = reinterpret_cast<ErrorString>(library.exported("nvmlErrorString"));
  return "NVML error " + std::to_string(error) + (get != nullptr ? std::string(", ") + get(error) : std::string());
}

struct Nvml {
  explicit Nvml(const std::string& file)
      : library({.what = "NVML", .names = {file}, .name_of_error = nvml_error_name}) {
    init();
  }

  using DeviceHandle = struct NvmlDeviceTag*;
  Library library;
  Call<> init{library, "nvmlInit_v2"};
  Call<char*, unsigned> driver_version{library, "nvmlSystemGetDriverVersion"};
  Call<const char*, DeviceHandle*> device{library, "nvmlDeviceGetHandleByPciBusId_v2"};
  Call<DeviceHandle, unsigned long long*> energy_mj{library, "nvmlDeviceGetTotalEnergyConsumption"};
  Call<DeviceHandle, unsigned*> power_mw{library, "nvmlDeviceGetPowerUsage"};
};

}  // namespace vedette::gpu
