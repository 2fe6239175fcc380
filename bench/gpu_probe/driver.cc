// How the driver's functions and the names of its errors are found: see driver.h.
#include "gpu_probe/driver.h"

namespace vedette::gpu {
namespace {

constexpr int interface_version = 13000;  // the signatures of driver.h are those of CUDA 13.0

void* by_proc_address(const Library& library, const char* exported) {
  std::string name(exported);  // cuMemFree_v2 is asked for as cuMemFree
  if (const std::size_t at = name.rfind("_v"); at != name.npos) name.resize(at);
  using GetProcAddress = int (*)(const char*, void**, int, std::uint64_t, int*);
  const auto get = reinterpret_cast<GetProcAddress>(library.exported("cuGetProcAddress_v2"));
  void* found = nullptr;
  int status = 0;
  return get != nullptr && get(name.c_str(), &found, interface_version, 0, &status) == 0 ? found : nullptr;
}

std::string driver_error_name(const Library& library, int error) {
  using GetErrorName = int (*)(int, const char**);
  const auto get = reinterpret_cast<GetErrorName>(library.exported("cuGetErrorName"));
  const char* name = nullptr;
  return get != nullptr && get(error, &name) == 0 && name != nullptr ? name : "CUDA error " + std::to_string(error);
}

}  // namespace

Driver::Driver(const std::string& file)
    : library(
          {.what = "driver", .names = {file}, .other_lookup = by_proc_address, .name_of_error = driver_error_name}) {
  init(0);
}

}  // namespace vedette::gpu
