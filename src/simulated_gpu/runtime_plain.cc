// Calls of the runtime that libtorch does not make, but programs of nvcc do; and the kernels that nvcc's code registers
// when it is loaded. The device cannot run them: a launch ends the process with the kernel's name, or leaves it out
// (skip_kernels of options.h).
#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "simulated_gpu/memory.h"
#include "simulated_gpu/reports.h"
#include "simulated_gpu/runtime.h"

namespace vedette::simulated {
namespace {

struct Registered {
  std::mutex guard;
  std::unordered_map<const void*, const char*> names;  // of nvcc's functions on the host: the kernel's, mangled
};

Registered& registered() {
  static auto* const all = new Registered;  // for ever: libraries are unloaded as the process ends
  return *all;
}

std::string kernel_name(const void* function) {
  const char* mangled = nullptr;
  {
    const std::lock_guard lock(registered().guard);
    const auto found = registered().names.find(function);
    if (found == registered().names.end()) return "a kernel without a name";
    mangled = found->second;
  }
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(mangled, nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 && name != nullptr ? name.get() : mangled;
}

cudaError_t leave_out(const void* function, cudaStream_t stream) {
  const std::string name = kernel_name(function);
  if (!options().skip_kernels)
    misuse("the kernel " + name +
           " is launched, which the simulation lacks; run this program on a GPU, or give the "
           "operator a kernel in src/simulated_gpu/kernels.cc");
  count_missing(name);
  launch(*stream_of(ours(stream)), name, {}, [] {});
  return cudaSuccess;
}

struct Configuration {
  dim3 grid, block;
  std::size_t shared = 0;
  void* stream = nullptr;
};
thread_local std::vector<Configuration> configurations;

// Rows of a copy in two dimensions.
cudaError_t copy_rows(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                      std::size_t height, cudaStream_t stream) {
  for (std::size_t row = 0; row < height; ++row) {
    const int error = copy_async(static_cast<std::byte*>(to) + row * to_pitch,
                                 static_cast<const std::byte*>(from) + row * from_pitch, width, stream);
    if (error != 0) return note(error);
  }
  return cudaSuccess;
}

}  // namespace
}  // namespace vedette::simulated

using namespace vedette::simulated;

SIMULATED_EXPORT void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
SIMULATED_EXPORT void __cudaRegisterFatBinaryEnd(void**) {}
SIMULATED_EXPORT void __cudaUnregisterFatBinary(void**) {}
SIMULATED_EXPORT char __cudaInitModule(void**) { return 1; }
SIMULATED_EXPORT void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, void*, void*,
                                             void*, void*, int*) {
  const std::lock_guard lock(registered().guard);
  registered().names.emplace(function, name);
}
SIMULATED_EXPORT void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
SIMULATED_EXPORT void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, std::size_t, int, int) {}

SIMULATED_EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, void* stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}

RUNTIME_CALL __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
  if (configurations.empty()) return note(cudaErrorMissingConfiguration);
  const Configuration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared = last.shared;
  std::memcpy(stream, &last.stream, sizeof last.stream);
  return cudaSuccess;
}

RUNTIME_CALL __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

RUNTIME_CALL cudaLaunchKernel(const void* function, dim3, dim3, void**, std::size_t, cudaStream_t stream) {
  ENTER("cudaLaunchKernel");
  return leave_out(function, stream);
}

RUNTIME_CALL __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, std::size_t, cudaStream_t stream) {
  ENTER("cudaLaunchKernel");
  return leave_out(kernel, stream);
}

RUNTIME_CALL cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void**) {
  ENTER("cudaLaunchKernelExC");
  return leave_out(function, config->stream);
}

RUNTIME_CALL cudaStreamCreate(cudaStream_t* stream) {
  ENTER("cudaStreamCreate");
  *stream = reinterpret_cast<cudaStream_t>(make_stream(true));
  return cudaSuccess;
}

RUNTIME_CALL cudaMallocHost(void** out, std::size_t bytes) {
  ENTER_WAITING("cudaMallocHost");
  return note(allocate_host(out, bytes));
}

RUNTIME_CALL cudaMallocAsync(void** out, std::size_t bytes, cudaStream_t) {
  ENTER("cudaMallocAsync");
  return note(allocate_device(out, bytes));
}

RUNTIME_CALL cudaMallocPitch(void** out, std::size_t* pitch, std::size_t width, std::size_t height) {
  ENTER_WAITING("cudaMallocPitch");
  *pitch = (width + 511) / 512 * 512;
  return note(allocate_device(out, *pitch * height));
}

// The memory stays until all is done that was queued by then, on whatever stream.
RUNTIME_CALL cudaFreeAsync(void* at, cudaStream_t) {
  ENTER("cudaFreeAsync");
  return note(free_device(at));
}

RUNTIME_CALL cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  ENTER("cudaHostGetDevicePointer");
  *device = host;
  return memory().pinned(host) ? cudaSuccess : note(cudaErrorInvalidValue);
}

RUNTIME_CALL cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                               std::size_t width, std::size_t height, cudaMemcpyKind, cudaStream_t stream) {
  ENTER("cudaMemcpy2DAsync");
  return copy_rows(to, to_pitch, from, from_pitch, width, height, stream);
}

RUNTIME_CALL cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                          std::size_t height, cudaMemcpyKind) {
  ENTER_WAITING("cudaMemcpy2D");
  const cudaError_t error = copy_rows(to, to_pitch, from, from_pitch, width, height, nullptr);
  stream_of(nullptr)->wait();
  return error;
}

RUNTIME_CALL cudaDeviceReset() {
  ENTER_WAITING("cudaDeviceReset");
  wait_for_device();
  return cudaSuccess;
}

RUNTIME_CALL cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
