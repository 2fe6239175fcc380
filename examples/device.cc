// libtorch's CUDA device, loaded at run time: see device.h.
#include "device.h"

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <dlfcn.h>
#include <torch/nn/module.h>

#include <stdexcept>

#include "adapter/torch/cuda_places.h"

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

namespace {

// A library of its own, so that this program needs no libtorch for CUDA.
template <class Function>
Function* in_gpu_library(const char* name) {
  static void* const library = ::dlopen("libvedette_torch_cuda.so", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw std::runtime_error(std::string("a budget of GPU memory is not in this build (") + ::dlerror() +
                             "); build with a libtorch for CUDA and CUDA's headers");
  return reinterpret_cast<Function*>(::dlsym(library, name));
}

}  // namespace

void keep_gpu_budget(const GpuBudget& budget) {
  auto* const open = in_gpu_library<decltype(vedette_gpu_open)>("vedette_gpu_open");
  if (const char* const why = open(budget.bytes, budget.small); why != nullptr) throw std::runtime_error(why);
}

GpuTraffic gpu_traffic() {
  const VedetteGpuCounters counters = in_gpu_library<decltype(vedette_gpu_counters)>("vedette_gpu_counters")();
  return {.bytes_in = counters.fetched_bytes,
          .bytes_out = counters.evicted_bytes,
          .most_in_use = counters.most_in_use_bytes};
}

void move_to_device(torch::nn::Module& module, const std::string& device) {
  if (device != "cpu") module.to(at::Device(device));
}

std::uint64_t device_peak_bytes() {
  constexpr std::size_t all = 0;  // StatType::AGGREGATE
  return static_cast<std::uint64_t>(
      c10::getDeviceAllocator(c10::DeviceType::CUDA)->getDeviceStats(0).allocated_bytes[all].peak);
}

}  // namespace vedette::examples
