// CUDA's driver, loaded at run time.
//
// The names are those that libcuda.so.1 exports and that cuda.h of CUDA 13 maps its own names to (cuMemFree is
// cuMemFree_v2). What a driver does not export is asked for by cuGetProcAddress as of CUDA 13.0: cuMemcpyBatchAsync had
// another signature in 12.8.
#pragma once
#include <string>

#include "gpu_probe/cuda_api.h"
#include "gpu_probe/library.h"

namespace vedette::gpu {

struct Driver {
  explicit Driver(const std::string& file);  // throws Refused("no driver (...)"), or where cuInit says no

  Library library;

  Call<unsigned> init{library, "cuInit"};
  Call<int*> driver_version{library, "cuDriverGetVersion"};
  Call<int*> device_count{library, "cuDeviceGetCount"};
  Call<Device*, int> device{library, "cuDeviceGet"};
  Call<char*, int, Device> device_name{library, "cuDeviceGetName"};
  Call<char*, int, Device> device_pci_bus_id{library, "cuDeviceGetPCIBusId"};
  Call<int*, Attribute, Device> attribute{library, "cuDeviceGetAttribute"};
  Call<Context*, Device> retain_context{library, "cuDevicePrimaryCtxRetain"};
  Call<Device> release_context{library, "cuDevicePrimaryCtxRelease_v2"};
  Call<Context> set_context{library, "cuCtxSetCurrent"};
  Call<std::size_t*, std::size_t*> memory_info{library, "cuMemGetInfo_v2"};  // free, total

  Call<Address*, std::size_t, std::size_t, Address, unsigned long long> reserve{library, "cuMemAddressReserve"};
  Call<Address, std::size_t> free_range{library, "cuMemAddressFree"};
  Call<Handle*, std::size_t, const AllocationProperties*, unsigned long long> create{library, "cuMemCreate"};
  Call<Handle> release{library, "cuMemRelease"};
  Call<Address, std::size_t, std::size_t, Handle, unsigned long long> map{library, "cuMemMap"};
  Call<Address, std::size_t> unmap{library, "cuMemUnmap"};
  Call<Address, std::size_t, const AccessDescription*, std::size_t> set_access{library, "cuMemSetAccess"};
  Call<std::size_t*, const AllocationProperties*, int> granularity{library, "cuMemGetAllocationGranularity"};

  Call<Address*, std::size_t> allocate{library, "cuMemAlloc_v2"};
  Call<Address> free{library, "cuMemFree_v2"};
  Call<void**, std::size_t, unsigned> host_allocate{library, "cuMemHostAlloc"};
  Call<void*> host_free{library, "cuMemFreeHost"};
  Call<Address*, void*, unsigned> device_pointer{library, "cuMemHostGetDevicePointer_v2"};
  Call<void*, std::size_t, unsigned> host_register{library, "cuMemHostRegister_v2"};
  Call<void*> host_unregister{library, "cuMemHostUnregister"};
  Call<Address*, std::size_t, unsigned> allocate_managed{library, "cuMemAllocManaged"};
  Call<Address, std::size_t, Location, unsigned, StreamHandle> prefetch{library, "cuMemPrefetchAsync_v2"};

  Call<Address, Address, std::size_t, StreamHandle> copy{library, "cuMemcpyAsync"};
  Call<Address*, Address*, std::size_t*, std::size_t, CopyAttributes*, std::size_t*, std::size_t, StreamHandle>
      copy_batch{library, "cuMemcpyBatchAsync_v2"};

  Call<StreamHandle*, unsigned> stream_create{library, "cuStreamCreate"};
  Call<StreamHandle> stream_destroy{library, "cuStreamDestroy_v2"};
  Call<StreamHandle> stream_synchronize{library, "cuStreamSynchronize"};
  Call<StreamHandle, EventHandle, unsigned> stream_wait_event{library, "cuStreamWaitEvent"};
  Call<StreamHandle, Address, std::uint32_t, unsigned> stream_wait_value{library, "cuStreamWaitValue32_v2"};
  Call<EventHandle*, unsigned> event_create{library, "cuEventCreate"};
  Call<EventHandle> event_destroy{library, "cuEventDestroy_v2"};
  Call<EventHandle, StreamHandle> event_record{library, "cuEventRecord"};
  Call<EventHandle> event_query{library, "cuEventQuery"};
  Call<EventHandle> event_synchronize{library, "cuEventSynchronize"};
  Call<float*, EventHandle, EventHandle> event_elapsed_ms{library, "cuEventElapsedTime"};

  Call<Module*, const void*> module_load{library, "cuModuleLoadData"};
  Call<Module> module_unload{library, "cuModuleUnload"};
  Call<Function*, Module, const char*> module_function{library, "cuModuleGetFunction"};
  Call<Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, StreamHandle, void**, void**>
      launch{library, "cuLaunchKernel"};
};

}  // namespace vedette::gpu
