// libtorch's CUDA device, loaded at run time: see device.h.
#include "device.h"

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <dlfcn.h>
#include <torch/nn/module.h>

#include <cstdlib>
#include <stdexcept>

namespace vedette::examples {

void prepare_device(const std::string& device) {
  if (device == "cpu") return;
  if (::dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_GLOBAL) == nullptr)
    throw std::runtime_error(std::string("libtorch's CUDA device cannot be loaded (") + ::dlerror() +
                             "); install a libtorch for CUDA with its libraries, or start scripts/with_simulated_gpu");
  if (!at::globalContext().hasCUDA())
    throw std::runtime_error("there is no GPU; use --device cpu, or start scripts/with_simulated_gpu");
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
}

void move_to_device(torch::nn::Module& module, const std::string& device) {
  if (device != "cpu") module.to(at::Device(device));
}

void use_deterministic_algorithms(Missing missing) {
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);  // read when cuBLAS is first used
  at::globalContext().setDeterministicAlgorithms(true, missing == Missing::allowed);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setBenchmarkCuDNN(false);
}

std::uint64_t device_peak_bytes() {
  constexpr std::size_t all = 0;  // StatType::AGGREGATE
  return static_cast<std::uint64_t>(
      c10::getDeviceAllocator(c10::DeviceType::CUDA)->getDeviceStats(0).allocated_bytes[all].peak);
}

}  // namespace vedette::examples
