// The functions of NVML that the probe calls, loaded at run time: those of src/cuda/nvml_calls.def, and one more.
#pragma once
#include <string>

#include "cuda/nvml.h"
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

  using DeviceHandle = cuda::Nvml::DeviceHandle;
  Library library;
#define CALL(member, header_name, exported_name, ...) Call<__VA_ARGS__> member{library, #exported_name};
#include "cuda/nvml_calls.def"
#undef CALL
  Call<char*, unsigned> driver_version{library, "nvmlSystemGetDriverVersion"};
};

}  // namespace vedette::gpu
