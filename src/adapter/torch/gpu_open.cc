// Opening GPU memory, and the GPU of a guard: see gpu_storages.h.
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <string>

#include "adapter/torch/gpu_lookups.h"
#include "adapter/torch/gpu_storages.h"
#include "vedette/result.h"

namespace vedette::adapter {
namespace {

std::atomic<c10::DeviceIndex> number_of_device{0};  // of the last guard

void load(const char* library, int binding, const char* remedy) {
  if (::dlopen(library, binding | RTLD_GLOBAL) != nullptr) return;
  throw Failure({Cause::unavailable,
                 std::string("a guard of GPU memory needs ") + library + ", which cannot be loaded (" + ::dlerror() +
                     "); " + remedy,
                 0});
}

// libtorch asks once in a process.
bool asked_anew_there_is_cuda() {
  const auto hooks = at::CUDAHooksRegistry()->Create("CUDAHooks", at::CUDAHooksArgs{});
  return hooks != nullptr && hooks->hasCUDA();
}

}  // namespace

GpuStorages*& GpuStorages::instance() noexcept {
  static GpuStorages* storages = nullptr;
  return storages;
}

GpuStorages* GpuStorages::opened() noexcept { return instance(); }

GpuStorages& GpuStorages::open(int number) {
  GpuStorages& storages = open();
  const int devices = c10::impl::VirtualGuardImpl(c10::kCUDA).deviceCount();
  if (number >= devices)
    throw Failure({Cause::unavailable,
                   "there is no gpu:" + std::to_string(number) + ": this program sees " + std::to_string(devices) +
                       " GPUs, of which the first is gpu:0",
                   0});
  number_of_device.store(static_cast<c10::DeviceIndex>(number));
  return storages;
}

int GpuStorages::own_number() {
  open();
  const c10::impl::VirtualGuardImpl cuda(c10::kCUDA);
  const char* const rank = ::secure_getenv("LOCAL_RANK");
  const int number = rank == nullptr ? -1 : std::atoi(rank);
  return number >= 0 && number < cuda.deviceCount() ? number : cuda.getDevice().index();
}

GpuStorages& GpuStorages::open() {
  if (instance() != nullptr) return *instance();
  load("libtorch_cuda.so", RTLD_LAZY, "install a libtorch for CUDA with its libraries");
  if (!at::globalContext().hasCUDA())
    throw Failure({Cause::unavailable,
                   asked_anew_there_is_cuda()
                       ? "libtorch decided that there is no GPU here when it was first asked, by torch::manual_seed or "
                         "the like, before libtorch_cuda.so was loaded; link the program with vedette::torch_cuda "
                         "(find_package(vedette COMPONENTS torch_cuda))"
                       : "there is no GPU here; use fast = \"dram\"",
                   0});
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  // A function that this libtorch lacks is a refusal here, and would end the process at its first call.
  load("libvedette_torch_cuda.so", RTLD_NOW,
       "build vedette with a libtorch for CUDA and CUDA's headers, and put the library where the program finds it");
  void* const self = ::dlopen("libvedette_torch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
  auto* const install = reinterpret_cast<decltype(&vedette_cuda_install)>(::dlsym(self, "vedette_cuda_install"));
  auto* const storages = new GpuStorages;
  storages->cuda_ = install(storages);
  storages->native_ = storages->cuda_->native;
  prepare_for_lookups();
  return *(instance() = storages);
}

c10::Device GpuStorages::device() noexcept { return {c10::kCUDA, number_of_device.load()}; }

bool GpuStorages::on_its_device() noexcept {
  return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getDevice() == device();
}

std::uint64_t GpuStorages::memory_of_device() const {
  const c10::DeviceGuard on_device(device());
  return cuda_->memory_of_device();
}

}  // namespace vedette::adapter
